"""Install a wheel into a fresh environment in which no compiler can be found, and use it there.

    python3 tools/wheel_check.py dist/octavo-….whl

Run-time dependencies come from requirements/runtime.lock. Text is generated if the default model is there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECK_NATIVE = "from octavo.kernels.select import available_isas; print(*available_isas())"


def main() -> int:
    """Run the check; the exit code of the first step that fails."""
    wheel = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        python, octavo = environment / "bin" / "python", environment / "bin" / "octavo"
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        lock = ROOT / "requirements" / "runtime.lock"
        without_compiler = {**os.environ, "PATH": str(environment / "bin"), "CXX": "", "CC": ""}
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "octavo")
        steps: list[list[str | Path]] = [
            [*pip, "--require-hashes", "--only-binary", ":all:", "-r", lock],
            [*pip, "--no-deps", "--no-index", wheel],
            [octavo, "--help"],
            [octavo, "explain", "--plain"],
        ]
        if any(cache.glob("*.gguf")):
            steps += [
                [python, "-c", CHECK_NATIVE],
                [octavo, "generate", "--kernels", "native", "--max-tokens", "16", "What is a library?"],
            ]
        for step in steps:
            print("$", *(Path(part).name if "/" in str(part) else part for part in step), flush=True)
            output = None if "generate" in step else subprocess.DEVNULL
            code = subprocess.run(
                step, env=without_compiler, cwd=folder, stdout=output, check=False
            ).returncode
            if code:
                print(f"wheel-check: exit code {code}", file=sys.stderr)
                return code
    print(f"wheel-check: {wheel.name} ({wheel.stat().st_size / 1e6:.2f} MB) works without a compiler")
    return 0


if __name__ == "__main__":
    if shutil.which("python3") is None:
        sys.exit("wheel-check: no python3 on PATH")
    sys.exit(main())
