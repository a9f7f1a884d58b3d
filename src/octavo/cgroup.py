"""Reading the limits of the cgroups that this process is in, of version 2 and 1: memory and CPU time."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CGROUP_ROOT = Path("/sys/fs/cgroup")


class Cgroup(NamedTuple):
    """One cgroup with one controller."""

    version: int
    folder: Path

    def words(self, name: str) -> list[str]:
        """The words of one of its files; none if it is missing."""
        return " ".join(lines(self.folder / name)).split()

    def number(self, name: str) -> int | None:
        """The number that one of its files consists of; ``None`` if it is missing or says "max"."""
        words = self.words(name)
        return int(words[0]) if words and words[0].isdecimal() else None


def cgroups(controller: str, *, proc: Path = PROC, root: Path = CGROUP_ROOT) -> Iterator[Cgroup]:
    """The cgroup of this process that has ``controller``, and those above it, which limit it as well.

    Args:
        controller: as "memory" or "cpu".
        proc: where the proc file system is.
        root: where cgroups are mounted.
    """
    for line in lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from (Cgroup(2, folder) for folder in _upwards(root, path))
        elif controller in controllers.split(","):
            yield from (Cgroup(1, folder) for folder in _upwards(root / controller, path))


def field(path: Path, name: str) -> int | None:
    """The number behind ``name`` at the start of a line; ``None`` if there is no such file or line."""
    for line in lines(path):
        words = line.split()
        if words[0] == name:
            return int(words[1])
    return None


def lines(path: Path) -> list[str]:
    """The lines of a file that are not blank; none if it cannot be read."""
    try:
        return [line for line in path.read_text().splitlines() if line.strip()]
    except OSError:
        return []


def _upwards(root: Path, path: str) -> list[Path]:
    """A cgroup's folder and all above it. Inside a container the lower ones may not be there."""
    folder = root / path.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]
