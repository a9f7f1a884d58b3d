"""Kernels that this machine cannot run: cross-compiled, emulated, and equal to the generic ones by bits.

The driver is native/tests/isa_digest.cpp. What this machine runs itself is compared, fully optimised, in the
other native tests; here it shows that the driver's inputs suit every instruction set.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from octavo.kernels.select import available_isas

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "isa_digest"  # kept: a second run compiles only what has changed
TOOLCHAIN = ROOT / "native" / "tests" / "aarch64-linux-gnu.cmake"
EMULATOR = "qemu-aarch64"
NEEDED = (os.environ.get("CXX", "c++").split()[0], "aarch64-linux-gnu-g++", EMULATOR, "cmake", "ninja")
SEARCH_PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

MISSING = [program for program in NEEDED if shutil.which(program, path=SEARCH_PATH) is None]
HOST_IS_X86 = platform.machine() == "x86_64"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HOST_IS_X86, reason="the emulated machine would be this one; it runs NEON itself"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


def run(*command: str | Path) -> str:
    """What the command prints; its complaints if it fails."""
    environment = {**os.environ, "PATH": SEARCH_PATH, "CXXFLAGS": ""}  # one compiler's flags, not the other's
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def build_driver(name: str, *options: str) -> Path:
    """Compiles the driver into its own folder; returns the program.

    Without optimisation, which would take a minute; no arithmetic is left to the compiler anyway.
    """
    folder = BUILD / name
    options += ("-DOCTAVO_ISA_DIGEST=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O0")
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options)
    run("cmake", "--build", folder, "--target", "isa_digest")
    return folder / "isa_digest"


def digests(*command: str | Path) -> dict[str, str]:
    """Digest by name of the case."""
    lines = [line.rsplit(" ", 1) for line in run(*command).splitlines()]
    by_case = dict(lines)
    assert len(by_case) == len(lines) > 300
    return by_case


def differences(got: dict[str, str], want: dict[str, str]) -> Sequence[str]:
    return [name for name in got.keys() | want.keys() if got.get(name) != want.get(name)]


@pytest.fixture(scope="module")
def host_driver() -> Path:
    return build_driver("host")


@pytest.fixture(scope="module")
def aarch64_driver() -> Path:
    return build_driver("aarch64", f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}")


@pytest.fixture(scope="module")
def generic(host_driver: Path) -> dict[str, str]:
    return digests(host_driver, "generic")


def test_every_instruction_set_of_this_machine_agrees(host_driver: Path, generic: dict[str, str]):
    for isa in available_isas():
        assert differences(digests(host_driver, isa), generic) == [], isa


@pytest.mark.parametrize("isa", ["generic", "neon", "neondotprod"])
def test_emulated_aarch64_agrees(isa: str, aarch64_driver: Path, generic: dict[str, str]):
    assert differences(digests(EMULATOR, aarch64_driver, isa), generic) == []
