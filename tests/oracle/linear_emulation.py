"""linear as docs/adr/0001-arithmetic.md writes it: float32 numpy, one operation after the other, bit for bit.

Nothing is shared with the native code or with the reference: the block formats are decoded here once more.
"""

from typing import NamedTuple

import numpy as np
from harness.fused import fma

from octavo.kernels.weight import Quantization, Weight

f32 = np.float32


class IntegerWeight(NamedTuple):
    """Element (n, k) is ``scales[n, k // 16] * quants[n, k] + minima[n, k // 16]``."""

    quants: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None
    by_halves: bool
    """Whether each half of a group of 32 has its own scale (and minimum), or its own copy of it."""


def linear(x: np.ndarray, weight: Weight) -> np.ndarray:
    """Rows ``x`` [num_tokens, columns] times the weight: [num_tokens, rows of the weight], float32."""
    with np.errstate(all="ignore"):
        if weight.quantization in (Quantization.F32, Quantization.F16, Quantization.BF16):
            return _float_linear(x, _widen(weight))
        return _integer_linear(x, decode(weight))


def _float_linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    acc = np.zeros((len(x), len(weight)), f32)
    for k in range(x.shape[1]):
        acc = fma(x[:, k, None], weight[None, :, k], acc)
    return acc


def _integer_linear(x: np.ndarray, weight: IntegerWeight) -> np.ndarray:
    groups = x.reshape(len(x), -1, 16)
    largest = np.abs(groups).max(axis=2)
    inverse = np.where(largest == 0, f32(0), f32(127) / largest)
    quants = np.nan_to_num(np.clip(np.rint(groups * inverse[:, :, None]), -127, 127)).astype(np.int64)
    d = largest / f32(127)
    sums = quants.sum(axis=2).astype(f32)
    acc = np.zeros((len(x), len(weight.quants)), f32)
    for g in range(x.shape[1] // 32):
        halves = []
        for half in (2 * g, 2 * g + 1):
            exact = quants[:, half] @ weight.quants[:, 16 * half : 16 * half + 16].T
            halves.append(exact.astype(f32))
        d0, d1 = d[:, 2 * g, None], d[:, 2 * g + 1, None]
        s0, s1 = weight.scales[None, :, 2 * g], weight.scales[None, :, 2 * g + 1]
        if weight.by_halves:
            acc = fma(halves[0] * d0, s0, acc)
            acc = fma(halves[1] * d1, s1, acc)
        else:
            acc = fma(fma(halves[1], d1, halves[0] * d0), s0, acc)
        if weight.minima is not None:
            factors = d0 * sums[:, 2 * g, None], d1 * sums[:, 2 * g + 1, None]
            if not weight.by_halves:
                factors = (fma(d1, sums[:, 2 * g + 1, None], factors[0]),)
            for minima, factor in zip(weight.minima.T[2 * g :], factors, strict=False):
                acc = fma(np.broadcast_to(minima, acc.shape), factor, acc)
    return acc


def _widen(weight: Weight) -> np.ndarray:
    if weight.quantization is Quantization.BF16:
        bits = weight.raw.view("<u2").astype(np.uint32) << 16
        return bits.view(f32).reshape(weight.shape)
    dtype = "<f4" if weight.quantization is Quantization.F32 else "<f2"
    return weight.raw.view(dtype).astype(f32).reshape(weight.shape)


def decode(weight: Weight) -> IntegerWeight:
    """The integers, scales and minima of a weight in one of the block formats."""
    rows, columns = weight.shape
    decoder = _DECODERS[weight.quantization]
    blocks = weight.raw.reshape(rows, -1)
    blocks = blocks.reshape(rows, columns // decoder.elements, -1)
    quants, scales, minima = decoder.decode(blocks)
    return IntegerWeight(
        quants.reshape(rows, columns).astype(np.int64),
        _by_sixteen(scales, rows, columns),
        None if minima is None else _by_sixteen(minima, rows, columns),
        decoder.by_halves,
    )


def _by_sixteen(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.repeat(values.reshape(rows, -1), columns // 16 // (values.size // rows), axis=1)


def _half(blocks: np.ndarray, offset: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[..., offset : offset + 2]).view("<f2").astype(f32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int64)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    return np.unpackbits(packed, axis=-1, bitorder="little").astype(np.int64) << 4


def _q4_0(b: np.ndarray) -> tuple:
    return _nibbles(b[..., 2:]), _half(b, 0), f32(-8) * _half(b, 0)


def _q4_1(b: np.ndarray) -> tuple:
    return _nibbles(b[..., 4:]), _half(b, 0), _half(b, 2)


def _q5_0(b: np.ndarray) -> tuple:
    return (_nibbles(b[..., 6:]) | _fifth_bits(b[..., 2:6])) - 16, _half(b, 0), None


def _q5_1(b: np.ndarray) -> tuple:
    return _nibbles(b[..., 8:]) | _fifth_bits(b[..., 4:8]), _half(b, 0), _half(b, 2)


def _q8_0(b: np.ndarray) -> tuple:
    return b[..., 2:].view(np.int8), _half(b, 0), None


def _k_scales(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = b[..., 4:16].astype(np.int64)
    low, middle, high = p[..., :4], p[..., 4:8], p[..., 8:]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=-1)
    minima = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=-1)
    return _half(b, 0) * scales.astype(f32), -(_half(b, 2) * minima.astype(f32))


def _k_nibbles(packed: np.ndarray) -> np.ndarray:
    pairs = packed.reshape(*packed.shape[:-1], 4, 32)
    return _nibbles(pairs).reshape(*packed.shape[:-1], 256)


def _q4_k(b: np.ndarray) -> tuple:
    return _k_nibbles(b[..., 16:]), *_k_scales(b)


def _q5_k(b: np.ndarray) -> tuple:
    high = np.stack([b[..., 16:48] >> bit & 1 for bit in range(8)], axis=-2).astype(np.int64) << 4
    return _k_nibbles(b[..., 48:]) | high.reshape(*b.shape[:-1], 256), *_k_scales(b)


def _q6_k(b: np.ndarray) -> tuple:
    low = b[..., :128].reshape(*b.shape[:-1], 2, 64).astype(np.int64)
    high = b[..., 128:192].reshape(*b.shape[:-1], 2, 32).astype(np.int64)
    nibbles = np.concatenate([low & 15, low >> 4], axis=-1)
    twos = np.concatenate([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    quants = (nibbles | twos << 4) - 32
    return quants, _half(b, 208) * b[..., 192:208].view(np.int8).astype(f32), None


def _two_bits(packed: np.ndarray) -> np.ndarray:
    halves = packed.reshape(*packed.shape[:-1], 2, 32).astype(np.int64)
    return np.concatenate([halves >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1).reshape(
        *packed.shape[:-1], 256
    )


def _q2_k(b: np.ndarray) -> tuple:
    scales, minima = (b[..., :16] & 15).astype(f32), (b[..., :16] >> 4).astype(f32)
    return _two_bits(b[..., 16:80]), _half(b, 80) * scales, -(_half(b, 82) * minima)


def _q3_k(b: np.ndarray) -> tuple:
    third = np.stack([b[..., :32] >> bit & 1 for bit in range(8)], axis=-2).astype(np.int64) << 2
    quants = _two_bits(b[..., 32:96]) | third.reshape(*b.shape[:-1], 256)
    p = b[..., 96:108].astype(np.int64)
    high = np.concatenate([p[..., 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    scales = _half(b, 108) * ((_nibbles(b[..., 96:104]) | high << 4) - 32).astype(f32)
    return quants, scales, f32(-4) * scales


_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def _iq4_nl(b: np.ndarray) -> tuple:
    return _NON_LINEAR[_nibbles(b[..., 2:])], _half(b, 0), None


def _iq4_xs(b: np.ndarray) -> tuple:
    p = b[..., 2:8].astype(np.int64)
    high = (p[..., :1] | p[..., 1:2] << 8) >> np.arange(0, 16, 2) & 3
    low = np.repeat(p[..., 2:], 2, axis=-1) >> np.tile([0, 4], 4) & 15
    quants = _NON_LINEAR[_nibbles(b[..., 8:].reshape(*b.shape[:-1], 8, 16))]
    return quants.reshape(*b.shape[:-1], 256), _half(b, 0) * ((low | high << 4) - 32).astype(f32), None


class _Decoder(NamedTuple):
    elements: int
    decode: object
    by_halves: bool = False


_DECODERS = {
    Quantization.Q4_0: _Decoder(32, _q4_0),
    Quantization.Q4_1: _Decoder(32, _q4_1),
    Quantization.Q5_0: _Decoder(32, _q5_0),
    Quantization.Q5_1: _Decoder(32, _q5_1),
    Quantization.Q8_0: _Decoder(32, _q8_0),
    Quantization.Q4_K: _Decoder(256, _q4_k),
    Quantization.Q5_K: _Decoder(256, _q5_k),
    Quantization.Q6_K: _Decoder(256, _q6_k, by_halves=True),
    Quantization.Q2_K: _Decoder(256, _q2_k, by_halves=True),
    Quantization.Q3_K: _Decoder(256, _q3_k, by_halves=True),
    Quantization.IQ4_NL: _Decoder(32, _iq4_nl),
    Quantization.IQ4_XS: _Decoder(256, _iq4_xs, by_halves=True),
}
