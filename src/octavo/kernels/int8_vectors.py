"""Vectors as int8 with one scale each: groups of activations (ADR 0001), heads of K and V (0016)."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Int8Vectors(NamedTuple):
    """Element i of a vector is ``quants[…, i] * scales[…]``."""

    quants: npt.NDArray[np.int8]
    """[…, width], in [-127, 127]"""
    scales: npt.NDArray[np.float32]
    """[…]; NaN where the vector holds a NaN, infinite where it holds an infinity."""


def quantize_vectors(vectors: npt.NDArray[Any]) -> Int8Vectors:
    """Quantise each vector of the last axis [..., width] by its largest magnitude, in float32."""
    vectors = vectors.astype(np.float32)
    largest = np.abs(vectors).max(axis=-1)
    # 127 / a overflows for a below 4e-37. There, and beside a NaN, the integers need only be in range.
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest != 0)
        quants = np.nan_to_num(np.rint(vectors * inverse[..., None]), nan=0.0).clip(-127, 127)
    return Int8Vectors(quants.astype(np.int8), largest / np.float32(127))


def dequantize_vectors(vectors: Int8Vectors, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """What the integers stand for [..., width]."""
    with np.errstate(invalid="ignore"):  # a vector with an infinity is 0 times infinity
        product: npt.NDArray[Any] = vectors.quants.astype(dtype) * vectors.scales[..., None].astype(dtype)
    return product
