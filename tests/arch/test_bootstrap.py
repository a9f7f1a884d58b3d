"""Setting up on a fresh machine: whatever is missing is said in one line."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "bootstrap.py"


@pytest.fixture(scope="module")
def bootstrap():
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", [(3, 8, 1), (3, 10, 14)])
def test_an_old_python_is_refused(bootstrap, version):
    with pytest.raises(bootstrap.SetupError, match=r"Python 3\.\d+\.\d+ found, 3\.11 or newer needed"):
        bootstrap.check_python(version)


def test_a_missing_compiler_is_named(bootstrap):
    with pytest.raises(bootstrap.SetupError, match=r"no C\+\+ compiler found .looked for no-such-compiler"):
        bootstrap.check_compiler(chosen="no-such-compiler")


def test_a_compiler_that_fails_is_named(bootstrap):
    with pytest.raises(bootstrap.SetupError, match=r"false does not compile C\+\+20"):
        bootstrap.check_compiler(chosen="false")


def test_a_full_disk_is_told_with_the_numbers(bootstrap, tmp_path):
    with pytest.raises(
        bootstrap.SetupError, match=r"GB free on the disk of .* about 1000000000\.0 GB needed"
    ):
        bootstrap.check_disk(tmp_path, needed=10**18)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError'",
            "registry cannot be reached",
        ),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
            "does not match its hash",
        ),
        (
            "ERROR: Could not find a version that satisfies x==1 (from versions: none)\n"
            "ERROR: No matching distribution found for x==1",
            "check pip's settings",
        ),
        ("ERROR: No matching distribution found for x==1", "has no build for this Python"),
        ("The virtual environment was not created: ensurepip is not available", "apt install python3-venv"),
        ("CMake Error: CMAKE_CXX_COMPILER not set", "no usable C\\+\\+ compiler"),
        ("x\nnative/step.cpp:3:1: error: expected ';'\n", "native/step.cpp:3:1: error: expected ';'"),
        ("", "no error message"),
    ],
)
def test_output_of_a_failed_step_becomes_one_line(bootstrap, output, cause):
    message = bootstrap.diagnose("a step", output)
    assert "\n" not in message
    assert re.search(cause, message)


def test_a_failed_step_keeps_its_output(bootstrap, tmp_path):
    command = [sys.executable, "-c", "print('error: it broke'); raise SystemExit(3)"]
    with pytest.raises(bootstrap.SetupError, match="making it failed: error: it broke"):
        bootstrap.run_step("making it", command, tmp_path / "setup.log")
    assert "error: it broke" in (tmp_path / "setup.log").read_text()


def test_the_script_itself_prints_one_line(tmp_path):
    result = subprocess.run(
        [sys.executable, SCRIPT, "dependencies", str(tmp_path / "venv")],
        capture_output=True,
        text=True,
        check=False,
        env={"CXX": "no-such-compiler", "PATH": "/usr/bin"},
    )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("setup: no C++ compiler found")
    assert not (tmp_path / "venv").exists()


def test_make_names_a_missing_python():
    result = subprocess.run(
        ["make", "--no-print-directory", "-B", ".venv/.dependencies", "PYTHON=no-such-python"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert result.returncode != 0
    assert "setup: no 'no-such-python' found" in result.stderr
