"""The cache folder: where fetched models and packed weights are kept, and how processes share it."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """``octavo`` in XDG_CACHE_HOME, or in ``~/.cache``."""
    configured = os.environ.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path.home() / ".cache") / "octavo"


def marker_of(path: Path) -> Path:
    """The file that says that another was verified."""
    return path.with_name(f"{path.name}.verified")


def is_verified(path: Path, checksum: str) -> bool:
    """Whether a file had this checksum when somebody looked last, and was not written since.

    Reads only its status: hashing 100 MB at every start would cost half a second.
    """
    try:
        return marker_of(path).read_text() == _status(path, checksum)
    except (OSError, ValueError):
        return False


def mark_verified(path: Path, checksum: str) -> None:
    """Note that the file has this checksum.

    Raises:
        OSError: the folder cannot be written to.
    """
    marker_of(path).write_text(_status(path, checksum))


@contextlib.contextmanager
def only_process(lock: Path, *, waiting: str | None) -> Iterator[None]:
    """Hold ``lock`` against other processes; the system releases it even if this one is killed.

    Args:
        lock: a file in a folder that exists.
        waiting: what to say on standard error while another process holds it.

    Raises:
        OSError: the folder cannot be written to.
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                sys.stderr.write(f"{waiting}\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _status(path: Path, checksum: str) -> str:
    status = path.stat()
    return f"{checksum} {status.st_size} {status.st_mtime_ns}\n"
