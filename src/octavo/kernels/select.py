"""What this machine can run: instruction sets of the native kernels, and how many threads."""

import math
import os
from pathlib import Path

from octavo.errors import KernelUnavailableError
from octavo.kernels.native_library import load_library

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def available_isas() -> tuple[str, ...]:
    """Instruction sets that were compiled and can run here, the best first.

    Raises:
        KernelUnavailableError: the native library is missing.
    """
    return load_library().isas("available")


def choose_isa(isa: str) -> str:
    """The best instruction set for ``auto``, else ``isa`` itself if it can run here.

    Raises:
        KernelUnavailableError: it cannot; a choice is never replaced silently.
    """
    available = available_isas()
    if isa == "auto":
        return available[0]
    if isa not in available:
        compiled = load_library().isas("compiled")
        reason = "this processor lacks it" if isa in compiled else "it was not built"
        raise KernelUnavailableError(
            f"instruction set {isa} cannot run here ({reason}); available: {', '.join(available)}, or auto"
        )
    return isa


def available_threads(cgroup_root: Path = _CGROUP_ROOT) -> int:
    """Threads that this process may keep busy: its affinity mask, cut to the cgroup's CPU quota."""
    affinity = len(os.sched_getaffinity(0))
    quota = _cgroup_cpu_quota(cgroup_root)
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def _cgroup_cpu_quota(root: Path) -> float | None:
    """Processors' worth of time per period, or ``None`` without a limit (version 2, then version 1)."""
    maximum = _read_words(root / "cpu.max")
    if maximum is not None and len(maximum) == 2:
        return _ratio(maximum[0], maximum[1])
    quota = _read_words(root / "cpu" / "cpu.cfs_quota_us")
    period = _read_words(root / "cpu" / "cpu.cfs_period_us")
    return _ratio(quota[0], period[0]) if quota and period else None


def _ratio(quota: str, period: str) -> float | None:
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0 or int(quota) == 0:
        return None  # "max", or -1: no limit
    return int(quota) / int(period)


def _read_words(path: Path) -> list[str] | None:
    try:
        return path.read_text().split()
    except OSError:
        return None
