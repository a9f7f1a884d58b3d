"""`octavo bench kernels`: each op against the reference, and its time against what the machine allows."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from octavo.bench.kernel_case import KernelCase, KernelOptions, PreparedKernel
from octavo.bench.limits import Limits, run_seconds, timed_runs
from octavo.bench.report import Column
from octavo.bench.spread import Spread, significant
from octavo.errors import EngineError

CASE_SECONDS = 0.5


class KernelResult(NamedTuple):
    """One op in one size."""

    op: str
    size: str
    seconds: Spread
    num_bytes: int
    num_operations: int
    bound: str | None
    """What limits it: "read", "integer" or "float"; ``None`` where the operands stay in a cache."""
    fraction: float | None
    """The least time that the machine allows, over the median. Where reading limits it: its rate over that of
    a pass over memory right after it, the median of such pairs."""
    error: float
    """Against the reference, over the row's largest magnitude."""

    @property
    def rate(self) -> str:
        """What the limit is counted in, at the median time."""
        if self.bound == "read":
            return f"{significant(self.num_bytes / self.seconds.median / 1e9)} GB/s"
        return f"{significant(self.num_operations / self.seconds.median / 1e9)} GOP/s"

    def as_row(self) -> dict[str, object]:
        """For a `Report`."""
        seconds = self.seconds
        return {
            "op": self.op,
            "size": self.size,
            "microseconds": seconds.scaled(1e6),
            "rate": self.rate,
            "gb_per_second": seconds.inverse(self.num_bytes / 1e9) if self.num_bytes else None,
            "gop_per_second": seconds.inverse(self.num_operations / 1e9),
            "bound": self.bound,
            "fraction": self.fraction,
            "error": self.error,
        }


COLUMNS = (
    Column("op", "op", is_number=False),
    Column("size", "size", is_number=False, wraps=True),
    Column("microseconds", "µs"),
    Column("rate", "rate"),
    Column("fraction", "of limit", is_share=True),
    Column("error", "error"),
)


class Machine(NamedTuple):
    """What the cases are compared with."""

    limits: Limits
    read_rate: Callable[[], float]
    """Bytes a second of one pass over memory, now."""


def run_kernels(
    cases: Iterable[KernelCase], options: KernelOptions, machine: Machine, *, seconds: float = CASE_SECONDS
) -> Iterator[KernelResult]:
    """Check and time one case after the other.

    Args:
        seconds: how long each is repeated.

    Raises:
        EngineError: a result is further from the reference than its sums allow.
    """
    for case in cases:
        yield _run_case(case, options, machine, seconds=seconds)


def _run_case(case: KernelCase, options: KernelOptions, machine: Machine, *, seconds: float) -> KernelResult:
    error = case.error(options)
    if not error <= case.tolerance:
        raise EngineError(
            f"{case.op}, {case.size}: off by {error:.1e} from the reference, allowed is "
            f"{case.tolerance:.1e}; a wrong result has no speed"
        )
    kernel = case.prepare(options)
    bound = case.peak and machine.limits.bound(kernel.num_bytes, kernel.num_operations, case.peak)
    try:
        spread = Spread.of(timed_runs(kernel.run, budget=seconds))
        fraction = bound and bound.seconds / spread.median
        if bound and bound.name == "read":
            fraction = _share_of_reading(kernel, machine, budget=seconds)
    finally:
        kernel.close()
    return KernelResult(
        op=case.op,
        size=case.size,
        seconds=spread,
        num_bytes=kernel.num_bytes,
        num_operations=kernel.num_operations,
        bound=bound.name if bound else None,
        fraction=fraction,
        error=error,
    )


def _share_of_reading(kernel: PreparedKernel, machine: Machine, *, budget: float) -> float:
    """Median of the kernel's rate over that of a pass over memory right after it."""
    shares: list[float] = []

    def compare() -> None:
        rate = kernel.num_bytes / run_seconds(kernel.run)
        shares.append(rate / machine.read_rate())

    timed_runs(compare, budget=budget)
    return statistics.median(shares)
