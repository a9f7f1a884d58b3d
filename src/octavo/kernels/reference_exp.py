"""The float32 exponential of ADR 0001, bit for bit.

A draw depends on comparing sums of weights. With the very weights of the native sampler the reference draws
the same token, so that the two can be compared by equality.
"""

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

_LOWEST, _HIGHEST = np.float32(-87.33654), np.float32(88.37626)
_LOG2_E = np.float32(1.4426950408889634)
_MINUS_LN2_HIGH, _MINUS_LN2_LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
_POLYNOMIAL = (
    np.float32(1.9875691500e-4),
    np.float32(1.3981999507e-3),
    np.float32(8.3334519073e-3),
    np.float32(4.1665795894e-2),
    np.float32(1.6666665459e-1),
    np.float32(5.0000001201e-1),
)


def exp_float32(x: Float32) -> Float32:
    """``e ** x``: range reduction by ln 2 in two parts, then a polynomial in Horner form."""
    x = np.clip(x, _LOWEST, _HIGHEST)
    n = np.rint(x * _LOG2_E)
    f = _fma(n, _MINUS_LN2_LOW, _fma(n, _MINUS_LN2_HIGH, x))
    p = np.full_like(f, _POLYNOMIAL[0])
    for coefficient in _POLYNOMIAL[1:]:
        p = _fma(p, f, coefficient)
    e = _fma(p * f, f, f + np.float32(1))
    scaled: Float32 = np.ldexp(e, np.nan_to_num(n).astype(np.int32))
    return scaled


def _fma(a: Float32, b: Float32 | np.float32, c: Float32 | np.float32) -> Float32:
    """``a * b + c``: the product is exact in float64; rounding the sum twice matters once in 2**29."""
    exact_product = a.astype(np.float64) * np.float64(b)
    return (exact_product + np.float64(c)).astype(np.float32)
