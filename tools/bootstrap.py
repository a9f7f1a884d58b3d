"""Make the development environment; every way this can fail on a fresh machine ends in one clear line.

    python3 tools/bootstrap.py dependencies .venv   create it and install requirements/dev.lock
    python3 tools/bootstrap.py package .venv        build the native library, install octavo in place

Runs on whatever Python is called python3, so it must load on old ones and uses the standard library only.
The full output of each step is kept in <environment>/setup.log.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 900_000_000
"""What the environment, the build and the default model take together, with some room."""
COMPILERS = ("c++", "g++", "clang++")
LOCK = "requirements/dev.lock"
NO_VENV = "Python's venv module is incomplete; install it (Debian, Ubuntu: apt install python3-venv)"
NAME_ONE = ", or name one: make CXX=/path/to/compiler"

# What the output of a failed step contains, and what that means. The first match speaks.
CAUSES = (
    (("No space left on device", "Errno 28"), "the disk is full; free about 1 GB and run make again"),
    (
        ("DO NOT MATCH THE HASHES",),
        "a package does not match its hash in " + LOCK + "; nothing was installed",
    ),
    (
        (
            "NewConnectionError",
            "NameResolutionError",
            "Name or service not known",
            "Failed to resolve",
            "ConnectTimeout",
            "ReadTimeout",
            "Connection refused",
            "Network is unreachable",
            "ProxyError",
        ),
        "the package registry cannot be reached; check the network (or pip's settings) and run make again",
    ),
    (("ensurepip",), NO_VENV),
    (("CMAKE_CXX_COMPILER",), "no usable C++ compiler; install g++ or clang++" + NAME_ONE),
    (
        ("(from versions: none)",),
        "pip's package index offers no version of a pinned package; check pip's settings (PIP_NO_INDEX, "
        "PIP_INDEX_URL, pip.conf), or the package has no build for this Python and platform",
    ),
    (("No matching distribution found",), "a pinned package has no build for this Python and platform"),
)


class SetupError(Exception):
    """The environment cannot be made; the message is the one line to print."""


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> None:
    """Refuse a Python that is too old."""
    if version < MIN_PYTHON:
        found = ".".join(str(part) for part in version)
        raise SetupError(f"Python {found} found, 3.11 or newer needed; name one: make PYTHON=/path/to/it")


def check_venv_module() -> None:
    """Refuse a Python without venv or ensurepip (Debian packs them apart)."""
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        raise SetupError(NO_VENV)


def check_compiler(names: tuple[str, ...] = COMPILERS, chosen: str | None = None) -> None:
    """Refuse a machine on which no compiler makes a C++20 shared library."""
    candidates = (chosen,) if chosen else names
    found = [name for name in candidates if shutil.which(name.split()[0])]
    if not found:
        raise SetupError(
            f"no C++ compiler found (looked for {', '.join(candidates)}); install g++ or clang++{NAME_ONE}"
        )
    source = "#include <bit>\nextern int probe();\nint probe() { return std::popcount(7u); }\n"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "probe.cpp")
        file.write_text(source, encoding="utf-8")
        target = str(file.with_suffix(".so"))
        command = [*found[0].split(), "-std=c++20", "-shared", "-fPIC", str(file), "-o", target]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            raise SetupError(f"{found[0]} does not compile C++20; GCC 11 or Clang 14 does{NAME_ONE}")


def check_disk(folder: Path, needed: int = MIN_FREE_BYTES) -> None:
    """Refuse a disk that the environment would fill, or a folder that cannot be written."""
    if not os.access(folder, os.W_OK):
        raise SetupError(f"{folder} cannot be written; check its owner and permissions")
    free = shutil.disk_usage(folder).free
    if free < needed:
        found = f"{free / 1e9:.2f} GB free on the disk of {folder}, about {needed / 1e9:.1f} GB needed"
        raise SetupError(f"{found}; free some space")


def diagnose(step: str, output: str) -> str:
    """One line for a failed step, from what it printed."""
    for patterns, cause in CAUSES:
        if any(pattern in output for pattern in patterns):
            return f"{step} failed: {cause}"
    errors = [line.strip() for line in output.splitlines() if "error" in line.lower()]
    return f"{step} failed: {errors[0] if errors else 'no error message'}"


def run_step(step: str, command: list[str], log: Path) -> None:
    """Run one command quietly, append its output to ``log``, and say in one line why it failed."""
    print(f"setup: {step} …", flush=True)
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n{result.stdout}\n")
    if result.returncode:
        raise SetupError(f"{diagnose(step, result.stdout)} (full output: {log})")


def make_environment(environment: Path) -> None:
    """Create the virtual environment and install exactly what the lock names."""
    check_python()
    check_venv_module()
    check_disk(environment.resolve().parent)
    check_compiler(chosen=os.environ.get("CXX"))
    environment.mkdir(parents=True, exist_ok=True)
    log = environment / "setup.log"
    python = environment / "bin" / "python"
    if not python.exists():
        run_step("making the environment", [sys.executable, "-m", "venv", str(environment)], log)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--retries", "2"]
    run_step("installing the pinned dependencies", [*pip, "--require-hashes", "-r", LOCK], log)


def install_package(environment: Path) -> None:
    """Build the native library and install octavo in place."""
    check_compiler(chosen=os.environ.get("CXX"))
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--no-index", "-e", "."]
    run_step("building the native library", command, environment / "setup.log")


def main() -> int:
    """Run the named stage; 1 and one line on stderr if it cannot be done."""
    stages = {"dependencies": make_environment, "package": install_package}
    if len(sys.argv) != 3 or sys.argv[1] not in stages:
        print(f"usage: {sys.argv[0]} dependencies|package ENVIRONMENT", file=sys.stderr)
        return 2
    try:
        stages[sys.argv[1]](Path(sys.argv[2]))
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"setup: {diagnose(sys.argv[1], f'error: {error}')}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
