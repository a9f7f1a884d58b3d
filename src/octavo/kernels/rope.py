"""Rotary position embedding: the tables of cosines and sines, and the rotation itself."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.kernels.program import RopeSpec, RopeStyle

Float32 = npt.NDArray[np.float32]


class RopeTables(NamedTuple):
    """Cosine and sine of each position's angles, times the rope's magnitude."""

    cos: Float32
    """[num_positions, rotary_dim / 2]"""
    sin: Float32
    """[num_positions, rotary_dim / 2]"""


def rope_tables_at(rope: RopeSpec, positions: npt.NDArray[np.integer]) -> RopeTables:
    """The rows for some positions: computed in float64, rounded once to float32.

    Raises:
        ValueError: the number of frequencies does not fit ``rotary_dim``.
    """
    if 2 * len(rope.frequencies) != rope.rotary_dim:
        raise ValueError(
            f"rope over {rope.rotary_dim} elements needs {rope.rotary_dim // 2} frequencies, "
            f"got {len(rope.frequencies)}"
        )
    angles = positions.astype(np.float64)[:, None] * np.array(rope.frequencies, np.float64)
    cos, sin = np.cos(angles) * rope.magnitude, np.sin(angles) * rope.magnitude
    return RopeTables(cos.astype(np.float32), sin.astype(np.float32))


def rotate(
    heads: npt.NDArray[np.floating],  # [num_tokens, num_heads, head_dim]
    tables: RopeTables,  # one row per token
    rope: RopeSpec,
) -> npt.NDArray[np.floating]:
    """Rotate each pair (x0, x1) by its angle to (x0 cos - x1 sin, x0 sin + x1 cos).

    Elements from ``rotary_dim`` on are passed through. The result has the shape and dtype of ``heads``.
    """
    first, second = _pair_slices(rope)
    cos, sin = tables.cos[:, None, :], tables.sin[:, None, :]
    x0, x1 = heads[..., first], heads[..., second]
    rotated = heads.copy()
    rotated[..., first] = x0 * cos - x1 * sin
    rotated[..., second] = x0 * sin + x1 * cos
    return rotated


def _pair_slices(rope: RopeSpec) -> tuple[slice, slice]:
    """Where the first and the second elements of the pairs lie in a head."""
    if rope.style is RopeStyle.INTERLEAVED:
        return slice(0, rope.rotary_dim, 2), slice(1, rope.rotary_dim, 2)
    half = rope.rotary_dim // 2
    return slice(0, half), slice(half, rope.rotary_dim)
