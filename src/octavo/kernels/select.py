"""What this machine can run: instruction sets of the native kernels, and how many threads."""

import math
import os
from pathlib import Path

from octavo.cgroup import CGROUP_ROOT, PROC, Cgroup, cgroups
from octavo.errors import KernelUnavailableError
from octavo.kernels.native_library import load_library


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


def available_threads(*, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> int:
    """Threads that this process may keep busy: its affinity mask, cut to the CPU quota of its cgroups."""
    affinity = len(os.sched_getaffinity(0))
    quotas = [_cpu_quota(cgroup) for cgroup in cgroups("cpu", proc=proc, root=cgroup_root)]
    limits = [math.ceil(quota) for quota in quotas if quota is not None]
    return max(1, min([affinity, *limits]))


def _cpu_quota(cgroup: Cgroup) -> float | None:
    """Processors' worth of time per period; ``None`` if the cgroup sets no limit."""
    if cgroup.version == 1:
        quota, period = cgroup.number("cpu.cfs_quota_us"), cgroup.number("cpu.cfs_period_us")
        return quota / period if quota and period else None
    words = cgroup.words("cpu.max")
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None  # "max": no limit
    quota, period = map(int, words)
    return quota / period if quota and period else None
