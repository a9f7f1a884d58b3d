"""`quantized_pieces`: a weight in another format, piece by piece, on several threads."""

import math
from collections.abc import Iterator
from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelLoadError
from octavo.kernels.quantization import bytes_per_row, dequantize, quantize
from octavo.kernels.weight import Quantization, Weight
from octavo.models.quoting import quote

_PIECE_ELEMENTS = 1 << 16
"""Numbers that a thread works on at once: in float32 they fit into its caches."""
_PIECES_AHEAD = 64
"""Pieces that are made before the first of them is taken; so many are in memory."""


def quantized_pieces(
    weight: Weight, quantization: Quantization, threads: Executor
) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of ``weight`` in another format, in order.

    Raises:
        ModelLoadError: a number of the weight is not finite.
    """
    num_rows, num_columns = math.prod(weight.shape[:-1]), weight.shape[-1]
    rows_each = max(1, _PIECE_ELEMENTS // num_columns)
    stored = weight.raw.reshape(num_rows, bytes_per_row(weight.quantization, num_columns))

    def piece(first: int) -> npt.NDArray[np.uint8]:
        rows = stored[first : first + rows_each]
        part = Weight(weight.name, (len(rows), num_columns), weight.quantization, rows.reshape(-1))
        values = dequantize(part)
        if not np.isfinite(values).all():
            raise ModelLoadError(f"tensor {quote(weight.name)} holds numbers that are not finite")
        return quantize(values, quantization)

    starts = range(0, num_rows, rows_each)
    for begin in range(0, len(starts), _PIECES_AHEAD):
        yield from threads.map(piece, starts[begin : begin + _PIECES_AHEAD])
