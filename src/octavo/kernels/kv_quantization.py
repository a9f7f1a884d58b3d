"""What an int8 cache makes of K, V and queries (ADR 0016): a scale per token and head, K and queries rotated.

A rotation leaves the products of queries and keys what they are and spreads a channel that is large in every
token over its neighbours, so that it no longer takes the others' precision away. V has no such channels.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.kernels.int8_vectors import Int8Vectors, dequantize_vectors, quantize_vectors

Array = npt.NDArray[Any]
"""[..., head_dim]"""


def rotation_size(head_dim: int) -> int:
    """Elements that are rotated together: the largest power of two that divides ``head_dim``."""
    return head_dim & -head_dim


def walsh_hadamard(heads: Array) -> Array:
    """Every run of n = `rotation_size` elements x becomes H·x, in the dtype of ``heads``.

    Sums and differences alone, by butterflies at distances 1, 2, 4, … n/2; nothing is normalised, so
    H·(H·x) = n·x and (H·x)·(H·y) = n·(x·y).
    """
    width, distance = heads.shape[-1], 1
    while distance < rotation_size(width):
        pairs = heads.reshape(*heads.shape[:-1], width // (2 * distance), 2, distance)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        with np.errstate(over="ignore", invalid="ignore"):  # an infinity less an infinity is NaN, and stays
            heads = np.stack([first + second, first - second], axis=-2).reshape(heads.shape)
        distance *= 2
    return heads


def quantize_keys(keys: Array) -> Int8Vectors:
    """K as it is stored: rotated, each token's head by its largest magnitude."""
    return quantize_vectors(walsh_hadamard(keys.astype(np.float32)))


def dequantize_keys(stored: Int8Vectors, dtype: npt.DTypeLike) -> Array:
    """What stored K stands for, rotated back."""
    return walsh_hadamard(dequantize_vectors(stored, dtype)) / rotation_size(stored.quants.shape[-1])


def quantize_queries(queries: Array, scale: float) -> Int8Vectors:
    """``queries * scale`` as they meet stored K: rotated, each head by its largest magnitude.

    They are divided by n as well, so that the product with a rotated key is that of the two before.
    """
    factor = np.float32(scale) / np.float32(rotation_size(queries.shape[-1]))
    with np.errstate(over="ignore", invalid="ignore"):
        return quantize_vectors(walsh_hadamard(queries.astype(np.float32)) * factor)


def dequantize_queries(quantized: Int8Vectors, dtype: npt.DTypeLike) -> Array:
    """What quantised queries stand for, rotated back, to meet keys that are rotated back."""
    return walsh_hadamard(dequantize_vectors(quantized, dtype))
