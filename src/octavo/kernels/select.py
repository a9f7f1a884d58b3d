"""What this machine can run: instruction sets of the native kernels, and how many threads."""

import math
import os
from pathlib import Path
from typing import NamedTuple

from octavo.cgroup import CGROUP_ROOT, PROC, Cgroup, cgroups
from octavo.errors import KernelUnavailableError
from octavo.kernels.native_library import load_library


class NativeSupport(NamedTuple):
    """What the native library of this installation can do on this machine."""

    isas: tuple[str, ...]
    """Instruction sets that can run here, the best first; empty without a usable library."""
    compiled_isas: tuple[str, ...] = ()
    """Instruction sets that were built, whatever this processor has."""
    problem: str = ""
    """Why there is no usable library, and the way out; empty if there is one."""


def native_support() -> NativeSupport:
    """Look at the native library: is it there, does it load, does it fit this package?"""
    try:
        return NativeSupport(available_isas(), load_library().isas("compiled"))
    except KernelUnavailableError as error:
        return NativeSupport((), problem=str(error))


def available_isas() -> tuple[str, ...]:
    """Instruction sets that were compiled and can run here, the best first.

    Raises:
        KernelUnavailableError: the native library is missing, or does not fit this package.
    """
    return load_library().isas("available")


def choose_isa(isa: str, support: NativeSupport | None = None) -> str:
    """The best instruction set for ``auto``, else ``isa`` itself if it can run here.

    Args:
        isa: a name, or ``auto``.
        support: what there is to choose from; looked up if omitted.

    Raises:
        KernelUnavailableError: it cannot, or nothing native can; a choice is never replaced silently.
    """
    support = support or native_support()
    if support.problem:
        raise KernelUnavailableError(support.problem)
    if isa == "auto":
        return support.isas[0]
    if isa not in support.isas:
        reason = "this processor lacks it" if isa in support.compiled_isas else "it was not built"
        raise KernelUnavailableError(
            f"instruction set {isa} cannot run here ({reason}); available: {', '.join(support.isas)}, or auto"
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
