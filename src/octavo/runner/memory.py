"""How much memory this process may still use; sizes as people write them."""

import re
from pathlib import Path

from octavo.cgroup import CGROUP_ROOT, PROC, Cgroup, cgroups, field
from octavo.errors import ConfigError

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_memory_size(text: str, *, option: str) -> int:
    """Bytes in a size such as ``512MiB``, ``4G`` (binary) or ``2GB`` (decimal).

    Args:
        text: a number and a unit, in any case.
        option: where it comes from, for the message.

    Raises:
        ConfigError: it is no size.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ConfigError(f"{option} must be a size such as 512MiB or 4GiB, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def format_memory_size(num_bytes: int) -> str:
    """A size for people: three digits and a binary unit."""
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def free_memory(*, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> int:
    """Bytes this process can still take: the machine's, or less if a cgroup sets a lower limit.

    Page cache that can be dropped counts as free, in the machine and in a cgroup.

    Raises:
        ConfigError: this system does not say.
    """
    available = field(proc / "meminfo", "MemAvailable:")
    rooms = [_room(cgroup) for cgroup in cgroups("memory", proc=proc, root=cgroup_root)]
    limits = [room for room in rooms if room is not None]
    if available is not None:
        limits.append(available * 1024)
    if not limits:
        raise ConfigError("cannot tell how much memory is free here; this needs /proc/meminfo")
    return max(min(limits), 0)


def _room(cgroup: Cgroup) -> int | None:
    """Bytes that a cgroup can still take; ``None`` if it sets no limit."""
    version_1 = cgroup.version == 1
    limit = cgroup.number("memory.limit_in_bytes" if version_1 else "memory.max")
    usage = cgroup.number("memory.usage_in_bytes" if version_1 else "memory.current")
    if limit is None or usage is None:
        return None
    page_cache = field(cgroup.folder / "memory.stat", "total_inactive_file" if version_1 else "inactive_file")
    return limit - usage + (page_cache or 0)
