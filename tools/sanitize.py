"""Run the tests of the native kernels under AddressSanitizer and UndefinedBehaviorSanitizer.

Builds the library once more into build/sanitize and puts it beside a copy of the package there, so that the
ordinary build stays what it is.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitize"
PACKAGE = BUILD / "package"
TESTS = ["tests/oracle", "tests/unit/kernels", "-k", "native"]

# Without site the editable install, which would serve the ordinary library, is out of the way.
RUN_PYTEST = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import pytest
sys.exit(pytest.main(["-o", "pythonpath=", "-p", "no:cacheprovider", "-q", *sys.argv[3:]]))
"""


def build(cmake: Path) -> Path:
    """Build with sanitizers; returns the package folder to import from."""
    options = ["-G", "Ninja", "-DOCTAVO_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Debug"]
    options.append("-DCMAKE_CXX_FLAGS=-fno-var-tracking-assignments")  # or GCC takes minutes a file
    configure = [str(cmake), "-S", str(ROOT), "-B", str(BUILD), *options]
    subprocess.run(configure, check=True)
    subprocess.run([cmake, "--build", BUILD], check=True)
    shutil.rmtree(PACKAGE, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "octavo", PACKAGE / "octavo")
    shutil.copy(BUILD / "liboctavo_native.so", PACKAGE / "octavo" / "kernels")
    return PACKAGE


def find_library(compiler: str, name: str) -> str:
    """Path of one of the compiler's own libraries."""
    command = [compiler, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Build, run, and return pytest's exit code."""
    binaries = Path(sys.executable).parent
    os.environ["PATH"] = f"{binaries}{os.pathsep}{os.environ['PATH']}"  # cmake finds the environment's ninja
    package = build(binaries / "cmake")
    compiler = os.environ.get("CXX", "c++")
    # libstdc++ as well, or AddressSanitizer does not find the function that throws, and aborts.
    runtime = " ".join(find_library(compiler, name) for name in ("libasan.so", "libstdc++.so.6"))
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks on purpose at exit
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    site_packages = next(Path(sys.prefix, "lib").glob("python3*/site-packages"))
    command = [sys.executable, "-S", "-c", RUN_PYTEST, str(package), str(site_packages), *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
