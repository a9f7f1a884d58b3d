"""How a model was stretched to longer contexts: the kinds of rope scaling, as formulas over frequencies.

Everything here is float64 and depends on nothing but the model and the configured context, never on the
length of a request: a token's bits must not change because its request grew.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Frequencies = npt.NDArray[np.float64]
"""[rotary_dim / 2], radians per position."""


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by ``factor``; 1 changes nothing."""

    factor: float = 1.0

    def apply(self, frequencies: Frequencies) -> Frequencies:
        """The scaled frequencies."""
        return frequencies / self.factor


@dataclass(frozen=True, slots=True)
class PairFactors:
    """Each pair has its own divisor: the table of a GGUF file, or LongRoPE's short or long factors."""

    factors: tuple[float, ...]

    def apply(self, frequencies: Frequencies) -> Frequencies:
        """The scaled frequencies."""
        return frequencies / np.array(self.factors, np.float64)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Slow pairs are divided by ``factor``, fast ones stay, and those between are mixed.

    A pair is slow or fast by how often it turns in the original context: less often than
    ``low_freq_factor`` times, or more often than ``high_freq_factor`` times.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int
    """Context that the model was first trained for [tokens]."""

    def apply(self, frequencies: Frequencies) -> Frequencies:
        """The scaled frequencies."""
        turns = self.original_context * frequencies / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return _mix(frequencies, frequencies / self.factor, np.clip(kept, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN: slow pairs are divided by ``factor``, fast ones stay, with a linear ramp over the pairs between.

    A pair is slow or fast by how often it turns in the original context: less often than ``beta_slow``
    times, or more often than ``beta_fast`` times.
    """

    base: float
    """That of the plain frequencies."""
    factor: float
    original_context: int
    """Context that the model was first trained for [tokens]."""
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    extrapolation: float = 1.0
    """How much of their own frequency the fast pairs keep."""
    truncate: bool = True
    """Whether the ramp starts and ends at whole pairs."""

    def apply(self, frequencies: Frequencies) -> Frequencies:
        """The scaled frequencies."""
        rotary_dim = 2 * len(frequencies)
        low = self._pair_turning(self.beta_fast, rotary_dim)
        high = self._pair_turning(self.beta_slow, rotary_dim)
        if self.truncate:
            low, high = np.floor(low), np.ceil(high)
        low, high = max(low, 0.0), min(high, rotary_dim - 1.0)
        width = high - low if high != low else 0.001
        ramp = np.clip((np.arange(len(frequencies)) - low) / width, 0.0, 1.0)
        return _mix(frequencies, frequencies / self.factor, (1.0 - ramp) * self.extrapolation)

    def _pair_turning(self, turns: float, rotary_dim: int) -> float:
        """The (fractional) pair that turns so often in the original context."""
        wavelength = self.original_context / (turns * 2 * math.pi)
        return float(rotary_dim * np.log(wavelength) / (2 * np.log(self.base)))


RopeScaling = LinearScaling | PairFactors | Llama3Scaling | YarnScaling


def plain_frequencies(base: float, rotary_dim: int) -> Frequencies:
    """Pair i turns by ``base ** (-2i / rotary_dim)`` radians per position."""
    exponents = -np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    frequencies: Frequencies = base**exponents
    return frequencies


def yarn_magnitude(factor: float, multiplier: float = 1.0) -> float:
    """What YaRN multiplies cosines and sines by, so that longer contexts do not flatten attention."""
    return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0


def longrope_magnitude(factor: float, original_context: int) -> float:
    """The same for LongRoPE; ``factor`` is the model's context over the original one."""
    if factor <= 1 or original_context <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original_context))


def _mix(kept: Frequencies, stretched: Frequencies, share_kept: Frequencies) -> Frequencies:
    mixed: Frequencies = kept * share_kept + stretched * (1.0 - share_kept)
    return mixed
