"""`Limits`: what this machine does at best, measured in the same run as what is compared with it."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Literal, NamedTuple, Self

import numpy as np

from octavo.bench.machine import last_level_cache
from octavo.kernels.native_library import load_library
from octavo.kernels.native_pool import NativePool
from octavo.kernels.native_probe import PROBE_BYTES, NativeProbe
from octavo.kernels.select import choose_isa

PROBE_SECONDS = 0.5
_REPETITIONS = 2_000_000
_ROUND_TRIPS = 1_000
_ROUND_TRIP_SECONDS = 0.25
"""New threads may share a core for a fifth of that."""


class Limits(NamedTuple):
    """Of all threads together, the best of several short runs."""

    read: float
    """Bytes a second out of memory."""
    integer: float
    """Operations a second: the products of bytes and their sums that integer kernels consist of."""
    round_trip: float
    """Seconds until one core has an answer from another; 0 with one thread.

    Cores without a cache in common take several times as long, and a virtual machine may have both by turns.
    """
    float: float
    """Operations a second: float32 fused multiply-adds, two operations each."""

    def bound(self, num_bytes: int, num_operations: int, peak: Literal["integer", "float"]) -> "Bound":
        """Whichever takes longer at best, reading so much or computing so much."""
        reading = Bound("read", num_bytes / self.read)
        computing = Bound(peak, num_operations / (self.integer if peak == "integer" else self.float))
        return max(reading, computing, key=lambda bound: bound.seconds)


class Bound(NamedTuple):
    """What limits a kernel, and the time below which it cannot come."""

    name: str
    seconds: float


class LimitProbe:
    """Reads memory and computes in registers, as fast as an instruction set allows.

    Raises:
        KernelUnavailableError: no native library, or ``isa`` cannot run here.
    """

    def __init__(self, *, isa: str = "auto", num_threads: int) -> None:
        library = load_library()
        self._pool = NativePool(num_threads, library=library)
        try:
            self._probe = NativeProbe(library=library, pool=self._pool, isa=choose_isa(isa))
            size = 8 * last_level_cache()
            self._buffer = np.ones(size - size % PROBE_BYTES, dtype=np.uint8)
            self._ahead = self._reads_faster_ahead()
        except BaseException:
            self._pool.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def read_rate(self) -> float:
        """Bytes a second of one pass over a buffer that no cache holds.

        For what is compared with it pass by pass: bandwidth is not the same from one minute to the next.
        """
        return self._buffer.nbytes / run_seconds(self._read)

    def limits(self) -> Limits:
        """The best of several short runs of each kind."""
        return Limits(
            read=self._buffer.nbytes / best_seconds(self._read),
            integer=self._probe.integer_operations(_REPETITIONS)
            / best_seconds(lambda: self._probe.integer_operations(_REPETITIONS)),
            float=self._probe.float_operations(_REPETITIONS)
            / best_seconds(lambda: self._probe.float_operations(_REPETITIONS)),
            round_trip=_round_trip(self._probe),
        )

    def _read(self) -> None:
        self._probe.read(self._buffer, ahead=self._ahead)

    def _reads_faster_ahead(self) -> bool:
        """Whether asking for lines beats leaving it to the processor to foresee them."""
        foreseen = best_seconds(partial(self._probe.read, self._buffer, ahead=False))
        asked = best_seconds(partial(self._probe.read, self._buffer, ahead=True))
        return asked < foreseen


def _round_trip(probe: NativeProbe) -> float:
    if probe.round_trips(1) == 0:
        return 0.0
    seconds = best_seconds(lambda: probe.round_trips(_ROUND_TRIPS), budget=_ROUND_TRIP_SECONDS)
    return seconds / _ROUND_TRIPS


def measure_round_trip(*, num_threads: int) -> float:
    """`Limits.round_trip` alone, in a quarter of a second."""
    library = load_library()
    with closing(NativePool(num_threads, library=library)) as pool:
        return _round_trip(NativeProbe(library=library, pool=pool, isa=choose_isa("auto")))


def measure_limits(*, isa: str = "auto", num_threads: int) -> Limits:
    """The limits alone, see `LimitProbe`."""
    with LimitProbe(isa=isa, num_threads=num_threads) as probe:
        return probe.limits()


def best_seconds(run: Callable[[], object], *, budget: float = PROBE_SECONDS) -> float:
    """The shortest of as many runs as fit in ``budget`` seconds, at least three.

    Shortest and not median, since a limit is what nothing else disturbed.
    """
    return min(timed_runs(run, budget=budget))


def timed_runs(run: Callable[[], object], *, budget: float = PROBE_SECONDS, at_least: int = 3) -> list[float]:
    """Seconds of each run, as many as fit in ``budget``; one run before them does not count."""
    run()
    deadline = time.perf_counter() + budget
    times: list[float] = []
    while len(times) < at_least or time.perf_counter() < deadline:
        times.append(run_seconds(run))
    return times


def run_seconds(run: Callable[[], object]) -> float:
    """How long one run takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
