"""`Histogram`: counts observations in buckets. Cheap enough for every token, and it knows no exporter."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

LATENCY_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
"""Upper bounds [s], from a decode step of a small model to half an hour in a queue."""
TOKEN_BOUNDS = tuple(float(2**power) for power in range(18))
"""Upper bounds [tokens]: 1 … 131,072."""
SMALL_COUNT_BOUNDS = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)


class HistogramCounts(NamedTuple):
    """A histogram at one moment; never changes."""

    bounds: Sequence[float]
    """Upper bounds, ascending; each bucket includes its own."""
    counts: Sequence[int]
    """Observations per bucket, not summed up; one more than bounds, for what is above the last."""
    total: float
    """Sum of all observations."""


class Histogram:
    """Counts observations. Not thread-safe: one thread owns it and hands out `counts`."""

    __slots__ = ("_bounds", "_counts", "_latest", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._latest: HistogramCounts | None = None

    def observe(self, value: float, times: int = 1) -> None:
        """Count one observation, or several of the same value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times
        self._latest = None

    def counts(self) -> HistogramCounts:
        """What has been counted so far; the same object again if nothing was since."""
        if self._latest is None:
            self._latest = HistogramCounts(self._bounds, tuple(self._counts), self._total)
        return self._latest
