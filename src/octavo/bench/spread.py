"""`Spread`: a handful of measurements as one median and its range."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Median and range of repeated measurements."""

    median: float
    low: float
    high: float
    num_runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def scaled(self, factor: float) -> "Spread":
        """The same in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Spread(self.median * factor, low, high, self.num_runs)

    def inverse(self, numerator: float) -> "Spread":
        """``numerator`` over each value: rates out of times."""
        return Spread(numerator / self.median, numerator / self.high, numerator / self.low, self.num_runs)

    def format(self, digits: int = 3) -> str:
        """As in ``12.3 (11.9 … 13)``, with that many significant digits."""
        median, low, high = (significant(value, digits) for value in (self.median, self.low, self.high))
        return median if self.num_runs == 1 else f"{median} ({low} … {high})"


def significant(value: float, digits: int = 3) -> str:
    """A number with that many significant digits, no exponent, whole digits never cut."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(decimals, 0)}f}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 … 1) of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
