import subprocess
import sys


def test_the_cache_needs_the_standard_library_only():
    program = (
        "import sys, octavo.kv, octavo.kv.invariants\n"
        "print(sorted({'numpy', 'torch'} & set(sys.modules)))\n"
        "print(sorted(name for name in sys.modules if name.startswith('octavo.')"
        " and not name.startswith(('octavo.kv', 'octavo.errors'))))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert result.stdout.split("\n")[0] == "[]"
