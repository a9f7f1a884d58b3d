"""The rotary frequencies of a model, with whatever scaling its metadata asks for."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelLoadError
from octavo.kernels.program import RopeSpec, RopeStyle
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    PairFactors,
    RopeScaling,
    YarnScaling,
    plain_frequencies,
    yarn_magnitude,
)
from octavo.models.weights import Weights

CONFIGURED_CONTEXT = "octavo.max_model_len"
"""Key of the context that the model is loaded for [tokens]; without it, it is the model's own."""

_KINDS = "'none', 'linear', 'llama3', 'yarn' and 'longrope'"


def read_rope(
    metadata: Metadata, weights: Weights, *, architecture: str, style: RopeStyle, head_dim: int
) -> RopeSpec:
    """Read the ``rope`` section of an architecture: base, rotated part of a head, and scaling.

    The divisors of Llama 3.1 and later may also be a tensor (``rope_freqs.weight``), and so may the short
    and long factors of LongRoPE (``rope_factors_short.weight``, ``rope_factors_long.weight``). The long ones
    are taken if the configured context is longer than the original one, for short requests too: a token's
    bits must not depend on how long its request becomes.

    Raises:
        ModelLoadError: a value is out of range, or the kind of scaling is not supported.
    """
    section = _RopeSection(metadata, architecture)
    rotary_dim = metadata.count(f"{section.key}.dimension_count", default=head_dim)
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise ModelLoadError(
            f"{metadata.path}: {section.key}.dimension_count must be even and at most the head size"
            f" {head_dim}, found {rotary_dim}"
        )
    base = metadata.number(f"{section.key}.freq_base", default=10_000.0)
    scaling, magnitude = _read_scaling(section, base)
    divisors = PairFactors(_pair_factors(section, weights, rotary_dim // 2))
    with np.errstate(all="ignore"):  # what a senseless file makes of this is checked below
        frequencies = divisors.apply(scaling.apply(plain_frequencies(base, rotary_dim)))
    if not np.all(np.isfinite(frequencies) & (frequencies >= 0)):
        raise ModelLoadError(f"{metadata.path}: the rope section gives frequencies that are not finite")
    return RopeSpec(style, rotary_dim, tuple(frequencies.tolist()), magnitude)


class _RopeSection(NamedTuple):
    """Where the keys are, and the contexts that scaling depends on."""

    metadata: Metadata
    architecture: str

    @property
    def key(self) -> str:
        """Prefix of the keys."""
        return f"{self.architecture}.rope"

    @property
    def context(self) -> int:
        """Context of the model [tokens]."""
        return self.metadata.count(f"{self.architecture}.context_length", default=1)

    @property
    def original_context(self) -> int:
        """Context that it was first trained for [tokens]."""
        return self.scaling_count("original_context_length", default=self.context)

    def scaling_number(self, name: str, *, default: float | None = None) -> float:
        """A number of the scaling."""
        return self.metadata.number(f"{self.key}.scaling.{name}", default=default)

    def scaling_count(self, name: str, *, default: int) -> int:
        """A count of the scaling."""
        return self.metadata.count(f"{self.key}.scaling.{name}", default=default)


def _read_scaling(section: _RopeSection, base: float) -> tuple[RopeScaling, float]:
    """The scaling that the metadata describes, and the magnitude."""
    kind = section.metadata.text(f"{section.key}.scaling.type") or "linear"
    magnitude = section.scaling_number("attn_factor", default=1.0)
    match kind:
        case "none" | "longrope":  # LongRoPE's factors are tables
            return LinearScaling(), magnitude
        case "linear":
            older_name = section.metadata.number(f"{section.key}.scale_linear", default=1.0)
            return LinearScaling(section.scaling_number("factor", default=older_name)), magnitude
        case "llama3":
            return _read_llama3(section), magnitude
        case "yarn":
            yarn = _read_yarn(section, base)
            return yarn, magnitude * yarn_magnitude(yarn.factor)
    raise ModelLoadError(
        f"{section.metadata.path}: rope scaling {quote(kind)} is not supported; {_KINDS} are"
    )


def _read_llama3(section: _RopeSection) -> Llama3Scaling:
    low, high = section.scaling_number("low_freq_factor"), section.scaling_number("high_freq_factor")
    if low >= high:
        raise ModelLoadError(
            f"{section.metadata.path}: {section.key}.scaling.high_freq_factor must be above low_freq_factor"
            f" {low:g}, found {high:g}"
        )
    return Llama3Scaling(section.scaling_number("factor"), low, high, section.original_context)


def _read_yarn(section: _RopeSection, base: float) -> YarnScaling:
    key = f"{section.key}.scaling"
    if f"{key}.yarn_log_multiplier" in section.metadata.values:
        raise ModelLoadError(f"{section.metadata.path}: {key}.yarn_log_multiplier is not supported")
    return YarnScaling(
        base,
        factor=section.scaling_number("factor", default=1.0),
        original_context=section.original_context,
        beta_fast=section.scaling_number("yarn_beta_fast", default=32.0),
        beta_slow=section.scaling_number("yarn_beta_slow", default=1.0),
        extrapolation=section.scaling_number("yarn_ext_factor", default=1.0),
        truncate=section.metadata.flag(f"{key}.yarn_truncate", default=True),
    )


def _pair_factors(section: _RopeSection, weights: Weights, num_pairs: int) -> tuple[float, ...]:
    """The divisors that a model has as tables; LongRoPE has two of them, of which one is used."""
    divisors = np.ones(num_pairs)
    if "rope_freqs.weight" in weights:
        divisors *= _vector(weights, "rope_freqs.weight", num_pairs)
    # Both tables are taken, whichever is used: the other is part of the model, too.
    short, long = (_longrope_factors(section, weights, kind, num_pairs) for kind in ("short", "long"))
    if short is None and long is None:
        return tuple(divisors.tolist())
    if short is None or long is None:
        raise ModelLoadError(f"{section.metadata.path}: LongRoPE needs factors both short and long")
    context = section.metadata.count(CONFIGURED_CONTEXT, default=section.context)
    divisors *= long if context > section.original_context else short
    return tuple(divisors.tolist())


def _longrope_factors(
    section: _RopeSection, weights: Weights, kind: str, num_pairs: int
) -> npt.NDArray[np.float64] | None:
    """A table of LongRoPE from a tensor or from the metadata."""
    name = f"rope_factors_{kind}.weight"
    if name in weights:
        return _vector(weights, name, num_pairs)
    factors = section.metadata.array(f"{section.key}.scaling.{kind}_factors", length=num_pairs)
    return None if factors is None else factors.astype(np.float64)


def _vector(weights: Weights, name: str, length: int) -> npt.NDArray[np.float64]:
    return weights.vector(name, length).raw.view("<f4").astype(np.float64)
