"""Random weights of every quantisation, with numbers of the size a trained model has."""

import numpy as np

from octavo.kernels.quantization import BLOCK_LAYOUTS, bytes_per_row, quantize
from octavo.kernels.weight import Quantization, Weight

_ENCODED = (
    Quantization.F32,
    Quantization.F16,
    Quantization.BF16,
    Quantization.Q4_0,
    Quantization.Q4_1,
    Quantization.Q8_0,
)

_SCALE_FIELDS = {
    # Where a block's float16 numbers lie, and how large the integers they multiply are (root mean square).
    Quantization.Q5_0: ((0, 9.0),),
    Quantization.Q5_1: ((0, 18.0), (2, 1.0)),
    Quantization.Q4_K: ((0, 36.0 * 9.0), (2, 36.0)),
    Quantization.Q5_K: ((0, 36.0 * 18.0), (2, 36.0)),
    Quantization.Q6_K: ((208, 74.0 * 18.0),),
    Quantization.Q2_K: ((80, 9.0 * 2.0), (82, 9.0)),
    Quantization.Q3_K: ((108, 18.0 * 2.3),),
    Quantization.IQ4_NL: ((0, 69.0),),
    Quantization.IQ4_XS: ((0, 18.0 * 69.0),),
}


def random_weight(
    rng: np.random.Generator, shape: tuple[int, ...], quantization: Quantization, *, name: str = "weight"
) -> Weight:
    """A weight whose products with rows of size 1 have about size 1."""
    size = shape[-1] ** -0.5
    if quantization in _ENCODED:
        return Weight(name, shape, quantization, quantize(rng.normal(0, size, shape), quantization))
    num_rows = int(np.prod(shape[:-1]))
    raw = rng.integers(0, 256, num_rows * bytes_per_row(quantization, shape[-1]), np.uint8)
    blocks = raw.reshape(-1, BLOCK_LAYOUTS[quantization].num_bytes)
    for offset, factor in _SCALE_FIELDS[quantization]:
        scales = rng.normal(0, size / factor, (len(blocks), 1)).astype("<f2")
        blocks[:, offset : offset + 2] = scales.view(np.uint8)
    return Weight(name, shape, quantization, raw)


def vector_weight(rng: np.random.Generator, width: int, *, name: str = "vector") -> Weight:
    """A float32 vector around 1 (norm weights) that also serves as a bias."""
    values = rng.normal(1, 0.3, width).astype(np.float32)
    return Weight(name, (width,), Quantization.F32, quantize(values, Quantization.F32))
