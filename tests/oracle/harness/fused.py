"""`fma`: the one operation of the kernels that numpy does not have."""

import numpy as np


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a · b + c of float32 arrays, rounded once.

    The product is exact in float64. The sum is rounded to odd there, which a second rounding cannot spoil.
    """
    product, addend = np.float64(a) * np.float64(b), np.float64(c)
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    inexact_and_even = np.isfinite(total) & (error != 0) & (total.view(np.int64) & 1 == 0)
    odd = np.nextafter(total, np.copysign(np.inf, error))
    return np.float32(np.where(inexact_and_even, odd, total))
