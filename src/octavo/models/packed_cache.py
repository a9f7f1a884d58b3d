"""The packed files in the cache folder: which there are, and which have to go."""

import contextlib
from pathlib import Path
from typing import NamedTuple

from octavo.models.cache_folder import marker_of
from octavo.models.packed_weights import SUFFIX

MAX_BYTES = 64 << 30
"""All packed files together; those used least recently go first."""


class PackedFile(NamedTuple):
    """A packed file."""

    path: Path
    num_bytes: int
    last_used: float
    """Seconds since the epoch."""


def packed_folder(cache: Path) -> Path:
    """Where packed files are kept."""
    return cache / "packed"


def packed_files(folder: Path) -> list[PackedFile]:
    """All packed files, the one used last in front."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # another process removes it right now
            status, marker = path.stat(), marker_of(path)
            last_used = marker.stat().st_mtime if marker.exists() else status.st_mtime
            found.append(PackedFile(path, status.st_size, last_used))
    return sorted(found, key=lambda file: -file.last_used)


def remove_packed(path: Path) -> None:
    """Remove a packed file; a process that has mapped it keeps it until it ends."""
    path.unlink(missing_ok=True)
    marker_of(path).unlink(missing_ok=True)


def make_room(folder: Path, num_bytes: int, *, max_bytes: int = MAX_BYTES) -> None:
    """Remove what was used least recently, until ``num_bytes`` more stay within the limit.

    What an earlier process that was killed left behind goes, too.
    """
    for leftover in folder.glob("*.partial"):
        leftover.unlink(missing_ok=True)
    kept = num_bytes
    for file in packed_files(folder):
        kept += file.num_bytes
        if kept > max_bytes:
            remove_packed(file.path)
