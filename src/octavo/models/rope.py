"""The rotary frequencies of a GGUF model, with whatever scaling its file asks for."""

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelLoadError
from octavo.kernels.program import RopeSpec, RopeStyle
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.weights import Weights

_FACTORS = "rope_freqs.weight"


def read_rope(
    metadata: Metadata, weights: Weights, *, architecture: str, style: RopeStyle, head_dim: int
) -> RopeSpec:
    """Read the ``rope`` section of an architecture.

    Pair i of a head turns by ``base ** (-2i / rotary_dim)`` radians per position, divided by the linear
    scaling factor and by the pair's own factor in ``rope_freqs.weight`` (Llama 3.1 and later), if any.

    Raises:
        ModelLoadError: a value is out of range, or the kind of scaling is not supported.
    """
    key = f"{architecture}.rope"
    rotary_dim = metadata.count(f"{key}.dimension_count", default=head_dim)
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise ModelLoadError(
            f"{metadata.path}: {key}.dimension_count must be even and at most the head size {head_dim},"
            f" found {rotary_dim}"
        )
    base = metadata.number(f"{key}.freq_base", default=10_000.0)
    exponents = -np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    with np.errstate(all="ignore"):  # what a senseless file makes of this is checked below
        frequencies = (
            base**exponents / _linear_factor(metadata, key) / _pair_factors(weights, rotary_dim // 2)
        )
    if not np.all(np.isfinite(frequencies) & (frequencies >= 0)):
        raise ModelLoadError(f"{metadata.path}: the rope section gives frequencies that are not finite")
    magnitude = metadata.number(f"{key}.scaling.attn_factor", default=1.0)
    return RopeSpec(style, rotary_dim, tuple(frequencies.tolist()), magnitude)


def _linear_factor(metadata: Metadata, key: str) -> float:
    kind = metadata.text(f"{key}.scaling.type") or "linear"
    if kind not in ("none", "linear"):
        raise ModelLoadError(
            f"{metadata.path}: rope scaling {quote(kind)} is not supported; 'none' and 'linear' are"
        )
    if kind == "none":
        return 1.0
    older_name = metadata.number(f"{key}.scale_linear", default=1.0)
    return metadata.number(f"{key}.scaling.factor", default=older_name)


def _pair_factors(weights: Weights, num_pairs: int) -> npt.NDArray[np.float64]:  # [num_pairs]
    if _FACTORS not in weights:
        return np.ones(num_pairs)
    return weights.vector(_FACTORS, num_pairs).raw.view("<f4").astype(np.float64)
