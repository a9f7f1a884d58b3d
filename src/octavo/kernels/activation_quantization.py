"""Activations as 8-bit integers, the left factor of every product with a quantised weight (ADR 0001)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.kernels.int8_vectors import Int8Vectors, dequantize_vectors, quantize_vectors
from octavo.kernels.weight import Quantization

ACTIVATION_GROUP_SIZE = 16

INTEGER_QUANTIZATIONS = frozenset(Quantization) - {Quantization.F32, Quantization.F16, Quantization.BF16}
"""Weights that are integers times scales: their products with quantised activations are exact integers."""


class QuantizedActivations(NamedTuple):
    """Element k of a row is ``quants[row, k] * scales[row, k // 16]``."""

    quants: npt.NDArray[np.int8]
    """[num_rows, width], in [-127, 127]"""
    scales: npt.NDArray[np.float32]
    """[num_rows, width / 16]; NaN where the group holds a NaN."""


def quantize_activations(rows: npt.NDArray[np.floating]) -> QuantizedActivations:
    """Quantise each group of 16 of ``rows`` [num_rows, width] by its largest magnitude.

    Raises:
        ValueError: the width is not a multiple of 16.
    """
    num_rows, width = rows.shape
    if width % ACTIVATION_GROUP_SIZE:
        raise ValueError(f"rows must be a multiple of {ACTIVATION_GROUP_SIZE} wide, got {width}")
    groups = quantize_vectors(rows.reshape(num_rows, -1, ACTIVATION_GROUP_SIZE))
    return QuantizedActivations(groups.quants.reshape(num_rows, width), groups.scales)


def dequantize_activations(
    activations: QuantizedActivations, dtype: npt.DTypeLike
) -> npt.NDArray[np.floating]:
    """What the integers stand for [num_rows, width]."""
    groups = activations.quants.reshape(*activations.scales.shape, ACTIVATION_GROUP_SIZE)
    return dequantize_vectors(Int8Vectors(groups, activations.scales), dtype).reshape(len(groups), -1)
