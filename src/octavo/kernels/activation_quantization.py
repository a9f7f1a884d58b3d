"""Activations as 8-bit integers, the left factor of every product with a quantised weight (ADR 0001)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    groups = rows.astype(np.float32).reshape(num_rows, -1, ACTIVATION_GROUP_SIZE)
    largest = np.abs(groups).max(axis=2)
    # 127 / a overflows for a below 4e-37. There, and beside a NaN, the integers need only be in range.
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest != 0)
        quants = np.nan_to_num(np.rint(groups * inverse[:, :, None]), nan=0.0).clip(-127, 127)
    return QuantizedActivations(quants.astype(np.int8).reshape(num_rows, width), largest / np.float32(127))


def dequantize_activations(
    activations: QuantizedActivations, dtype: npt.DTypeLike
) -> npt.NDArray[np.floating]:
    """What the integers stand for [num_rows, width]."""
    scales = np.repeat(activations.scales, ACTIVATION_GROUP_SIZE, axis=1)
    with np.errstate(invalid="ignore"):  # a group with an infinity is 0 times infinity
        product: npt.NDArray[np.floating] = activations.quants.astype(dtype) * scales.astype(dtype)
    return product
