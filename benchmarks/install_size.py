"""Measure what a user meets first: an install's size, and the time from `octavo --help` to text.

    python benchmarks/install_size.py dist/octavo-….whl

Installs the wheel with its locked run-time dependencies into a fresh environment and prints markdown for
docs/benchmarks/install-and-start.md. The operating system keeps files in memory after the first run, so times
are those of a warm start: median and range of several runs.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def folder_bytes(folder: Path) -> int:
    """Size of all files below a folder, links left out."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def seconds(command: list[str | Path], *, until_output: bool) -> float:
    """Wall time of a command, to its end or to the first byte on its stdout."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.read(1 if until_output else -1)
        elapsed = time.perf_counter() - start
        process.stdout.read()
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return elapsed


def timing_row(label: str, command: list[str | Path], *, runs: int, until_output: bool = False) -> str:
    """A table row: median and range over ``runs`` after one run to warm up."""
    seconds(command, until_output=until_output)
    times = [seconds(command, until_output=until_output) for _ in range(runs)]
    return f"| {label} | {statistics.median(times):.2f} s | {min(times):.2f} … {max(times):.2f} s |"


def size_rows(python: Path, pip_size: int) -> list[str]:
    """The largest distributions in the environment, and the sum of all but pip."""
    report = (
        "import importlib.metadata as m, json; size = lambda f: f.stat().st_size if f.is_file() else 0;"
        "print(json.dumps({d.name: sum(size(f.locate()) for f in d.files or ())"
        " for d in m.distributions() if d.name not in ('pip', 'setuptools')}))"
    )
    sizes = json.loads(subprocess.run([python, "-c", report], capture_output=True, check=True).stdout)
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    rows = [f"| {name} | {size / 1e6:.1f} MB |" for name, size in largest[:8]]
    rest = sum(size for _, size in largest[8:])
    rows.append(f"| {len(largest) - 8} more | {rest / 1e6:.1f} MB |")
    rows.append(f"| **all of it, without pip** | **{pip_size / 1e6:.1f} MB** |")
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python, octavo = Path(folder, "bin", "python"), Path(folder, "bin", "octavo")
        bare = folder_bytes(Path(folder))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", ROOT / "requirements" / "runtime.lock"], check=True)
        subprocess.run([*pip, "--no-deps", "--no-index", arguments.wheel.resolve()], check=True)
        print(
            f"Wheel: {arguments.wheel.stat().st_size / 1e6:.2f} MB. Python {platform.python_version()}, ",
            end="",
        )
        print(f"{os.cpu_count()} CPUs, {platform.machine()}.\n")
        print("| installed | size |\n|---|---|")
        print("\n".join(size_rows(python, folder_bytes(Path(folder)) - bare)))
        print("\n| from the command to | median | range |\n|---|---|---|")
        generate = [octavo, "generate", "--max-tokens", "16", "What is a library?"]
        runs = arguments.runs
        print(timing_row("the end of `octavo --help`", [octavo, "--help"], runs=runs))
        print(timing_row("the end of `octavo explain`", [octavo, "explain"], runs=runs))
        print(timing_row("the first text of `octavo generate`", generate, runs=runs, until_output=True))
        print(timing_row("the end of `octavo generate`, 16 tokens", generate, runs=runs))


if __name__ == "__main__":
    main()
