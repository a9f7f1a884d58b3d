"""How many threads this process can really run at once."""

import math
import os
from pathlib import Path

from octavo.runner.cgroup import CGROUP_ROOT, PROC, Cgroup, cgroups


def available_cpus(*, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> int:
    """CPUs in the affinity mask, or fewer if a cgroup's quota allows less; at least 1.

    A quota of 1.5 CPUs makes 2: a second thread that is throttled half of the time beats none.
    """
    quotas = (_quota(cgroup) for cgroup in cgroups("cpu", proc=proc, root=cgroup_root))
    limits = [math.ceil(quota) for quota in quotas if quota is not None]
    return max(min([len(os.sched_getaffinity(0)), *limits]), 1)


def _quota(cgroup: Cgroup) -> float | None:
    """CPUs that a cgroup may keep busy; ``None`` if it sets no limit."""
    if cgroup.version == 2:
        words = cgroup.words("cpu.max")  # "50000 100000", or "max 100000"
    else:
        words = cgroup.words("cpu.cfs_quota_us") + cgroup.words("cpu.cfs_period_us")  # the first may be -1
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None
    return int(words[0]) / int(words[1])
