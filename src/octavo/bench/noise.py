"""Who else uses the machine: a measurement beside a busy neighbour is no measurement.

`Meter` reports the share of the machine that others took while it ran, and `wait_until_quiet` waits until
they take little. Standard library only, from /proc.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

QUIET_SHARE = 0.08
"""A run is clean if others took at most this share of the machine."""
PROC = Path("/proc")


class ProcessTimes(NamedTuple):
    """One process as /proc tells it."""

    parent: int
    seconds: float
    """CPU time of it and of its children that have ended."""


class CpuSample(NamedTuple):
    """CPU time up to a moment [s]."""

    at: float
    busy: float
    """Of all processors together, time stolen by other virtual machines included."""
    own: float
    """Of the processes that are measured, with their descendants."""


def read_busy_seconds(*, proc: Path = PROC) -> float:
    """CPU time spent by anyone since the start of the machine, over all processors [s]."""
    first_line = (proc / "stat").read_text().splitlines()[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first_line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _ticks_per_second()


def read_processes(*, proc: Path = PROC) -> dict[int, ProcessTimes]:
    """Every process by id."""
    processes = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended
            fields = text.rpartition(")")[2].split()  # the name before it may hold anything
            ticks = sum(map(int, fields[11:15]))
            processes[int(folder.name)] = ProcessTimes(int(fields[1]), ticks / _ticks_per_second())
    return processes


def tree_seconds(roots: Sequence[int], processes: dict[int, ProcessTimes]) -> float:
    """CPU time of some processes and all their descendants [s]."""
    children: dict[int, list[int]] = {}
    for process_id, process in processes.items():
        children.setdefault(process.parent, []).append(process_id)
    pending, seen, total = list(roots), set[int](), 0.0
    while pending:
        process_id = pending.pop()
        if process_id in processes and process_id not in seen:
            seen.add(process_id)
            total += processes[process_id].seconds
            pending += children.get(process_id, [])
    return total


def read_sample(roots: Sequence[int]) -> CpuSample:
    """The state of now.

    Args:
        roots: ids of the processes that are measured.
    """
    own = tree_seconds(roots, read_processes())
    return CpuSample(time.perf_counter(), read_busy_seconds(), own)


def others_share(start: CpuSample, end: CpuSample, *, num_cpus: int) -> float:
    """Share of the machine, 0 … 1, that others took between two samples."""
    seconds = max(end.at - start.at, 1e-9)
    others = (end.busy - start.busy) - (end.own - start.own)
    return min(max(others / seconds / num_cpus, 0.0), 1.0)


class Meter:
    """Measures the share of others while a ``with`` block runs.

    Args:
        roots: ids of the processes that are measured; this one by default.
        sample: reads the state of the machine.
    """

    def __init__(
        self,
        roots: Sequence[int] | None = None,
        *,
        sample: Callable[[Sequence[int]], CpuSample] = read_sample,
    ) -> None:
        self._roots = [os.getpid()] if roots is None else list(roots)
        self._sample = sample
        self._start: CpuSample | None = None
        self.others = 0.0
        """Share of the machine that others took, once the block has ended."""

    def __enter__(self) -> Self:
        self._start = self._sample(self._roots)
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._start is not None:
            self.others = others_share(self._start, self._sample(self._roots), num_cpus=num_cpus())

    @property
    def is_clean(self) -> bool:
        """Whether the others took little enough."""
        return self.others <= QUIET_SHARE


def wait_until_quiet(
    *,
    timeout: float,
    roots: Sequence[int] | None = None,
    window: float = 1.0,
    sample: Callable[[Sequence[int]], CpuSample] = read_sample,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until others take little of the machine, or ``timeout`` seconds are over.

    Returns:
        The share they took in the last window; above `QUIET_SHARE` if the machine did not become quiet.
    """
    processes = [os.getpid()] if roots is None else list(roots)
    before = sample(processes)
    deadline = before.at + timeout
    while True:
        sleep(window)
        now = sample(processes)
        share = others_share(before, now, num_cpus=num_cpus())
        if share <= QUIET_SHARE or now.at >= deadline:
            return share
        before = now


def num_cpus() -> int:
    """Processors of the machine, this process's or not."""
    return os.cpu_count() or 1


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")
