"""The numbers behind a weight's bytes: GGUF's block formats, to float32 and back.

A row is a sequence of blocks; a block holds 32 or 256 consecutive elements (one in the float formats) as
small integers with the scales they share. Every decoder below takes the bytes of whole blocks and rounds
exactly as ggml does, so that a weight is the same float32 here and in every other reader of the file.

Encoders exist for the formats whose rounding is one formula; files and tests are made with them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.kernels.weight import Quantization, Weight

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]

_NIBBLE = np.uint8(4)  # bits


class BlockLayout(NamedTuple):
    """``num_bytes`` bytes hold ``num_elements`` consecutive elements of a row."""

    num_elements: int
    num_bytes: int


BLOCK_LAYOUTS: dict[Quantization, BlockLayout] = {
    Quantization.F32: BlockLayout(1, 4),
    Quantization.F16: BlockLayout(1, 2),
    Quantization.BF16: BlockLayout(1, 2),
    Quantization.Q4_0: BlockLayout(32, 2 + 16),
    Quantization.Q4_1: BlockLayout(32, 2 + 2 + 16),
    Quantization.Q5_0: BlockLayout(32, 2 + 4 + 16),
    Quantization.Q5_1: BlockLayout(32, 2 + 2 + 4 + 16),
    Quantization.Q8_0: BlockLayout(32, 2 + 32),
    Quantization.Q4_K: BlockLayout(256, 2 + 2 + 12 + 128),
    Quantization.Q5_K: BlockLayout(256, 2 + 2 + 12 + 32 + 128),
    Quantization.Q6_K: BlockLayout(256, 128 + 64 + 16 + 2),
    Quantization.Q2_K: BlockLayout(256, 16 + 64 + 2 + 2),
    Quantization.Q3_K: BlockLayout(256, 32 + 64 + 12 + 2),
    Quantization.IQ4_NL: BlockLayout(32, 2 + 16),
    Quantization.IQ4_XS: BlockLayout(256, 2 + 2 + 4 + 128),
}


def bytes_per_row(quantization: Quantization, num_columns: int) -> int:
    """Size of one stored row.

    Raises:
        ValueError: the row is not a whole number of blocks.
    """
    num_elements, num_bytes = BLOCK_LAYOUTS[quantization]
    if num_columns % num_elements:
        raise ValueError(
            f"a {quantization} row must be a multiple of {num_elements} columns, got {num_columns}"
        )
    return num_columns // num_elements * num_bytes


def dequantize(weight: Weight) -> Float32:
    """All elements of ``weight``, in its shape."""
    return _decode(weight.raw, weight.quantization).reshape(weight.shape)


def dequantize_rows(weight: Weight, rows: npt.NDArray[np.integer]) -> Float32:
    """Some rows of a matrix [len(rows), columns]; the others are not touched."""
    num_columns = weight.shape[-1]
    stored_rows = weight.raw.reshape(-1, bytes_per_row(weight.quantization, num_columns))
    return _decode(stored_rows[rows], weight.quantization).reshape(len(rows), num_columns)


def quantize(values: npt.NDArray[np.floating], quantization: Quantization) -> Bytes:
    """The bytes of ``values`` [..., columns], row after row, flat.

    Raises:
        ValueError: there is no encoder for this format, or a row is not a whole number of blocks.
    """
    encoder = _ENCODERS.get(quantization)
    if encoder is None:
        raise ValueError(f"cannot quantise to {quantization}; to {', '.join(_ENCODERS)} it works")
    bytes_per_row(quantization, values.shape[-1])
    num_elements = BLOCK_LAYOUTS[quantization].num_elements
    return encoder(values.astype(np.float32).reshape(-1, num_elements)).reshape(-1)


def _decode(raw: Bytes, quantization: Quantization) -> Float32:
    """Whole blocks, as contiguous bytes, to their elements, flat."""
    blocks = raw.reshape(-1, BLOCK_LAYOUTS[quantization].num_bytes)
    return _DECODERS[quantization](blocks).reshape(-1)


# ---- Decoders: [num_blocks, num_bytes] -> [num_blocks, num_elements] ------------------------------------


def _decode_f32(blocks: Bytes) -> Float32:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32)


def _decode_f16(blocks: Bytes) -> Float32:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def _decode_bf16(blocks: Bytes) -> Float32:
    upper_half = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (upper_half << 16).view(np.float32)


def _decode_q4_0(blocks: Bytes) -> Float32:
    scale, quants = _f16(blocks, 0), _nibbles(blocks[:, 2:])
    return (quants.astype(np.float32) - 8) * scale


def _decode_q4_1(blocks: Bytes) -> Float32:
    scale, minimum, quants = _f16(blocks, 0), _f16(blocks, 2), _nibbles(blocks[:, 4:])
    return quants.astype(np.float32) * scale + minimum


def _decode_q5_0(blocks: Bytes) -> Float32:
    quants = _nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << _NIBBLE
    return (quants.astype(np.float32) - 16) * _f16(blocks, 0)


def _decode_q5_1(blocks: Bytes) -> Float32:
    quants = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << _NIBBLE
    return quants.astype(np.float32) * _f16(blocks, 0) + _f16(blocks, 2)


def _decode_q8_0(blocks: Bytes) -> Float32:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _f16(blocks, 0)


def _decode_q4_k(blocks: Bytes) -> Float32:
    quants = _nibbles(blocks[:, 16:].reshape(-1, 32)).reshape(-1, 8, 32)
    return _apply_k_scales(blocks, quants)


def _decode_q5_k(blocks: Bytes) -> Float32:
    # Bit g of high byte i is the fifth bit of element i of group g.
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & np.uint8(1)
    quants = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32) | high << _NIBBLE
    return _apply_k_scales(blocks, quants)


def _decode_q6_k(blocks: Bytes) -> Float32:
    # Each half of 128 elements has 64 bytes of low nibbles and 32 bytes that hold four pairs of high bits.
    low = blocks[:, :128].reshape(-1, 2, 1, 64) >> np.array([[0], [4]], np.uint8) & 0xF
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    quants = (low.reshape(-1, 16, 16) | high.reshape(-1, 16, 16) << 4).astype(np.float32) - 32
    scales = _f16(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scales[:, :, None] * quants).reshape(-1, 256)


def _decode_q2_k(blocks: Bytes) -> Float32:
    # A byte for each group of 16: its scale in the low nibble, its minimum in the high one.
    scale = _f16(blocks, 80) * (blocks[:, :16] & 0xF).astype(np.float32)
    minimum = _f16(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    quants = _two_bits(blocks[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    return (scale[:, :, None] * quants - minimum[:, :, None]).reshape(-1, 256)


def _decode_q3_k(blocks: Bytes) -> Float32:
    # Bit g of byte i is the third bit of element i of group g (of 32). Scales are 6 bits: the low four are
    # nibbles of 8 bytes, the high two lie in the 4 bytes that follow.
    third = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & np.uint8(1)
    quants = (_two_bits(blocks[:, 32:96]) | third << np.uint8(2)).reshape(-1, 16, 16).astype(np.float32) - 4
    high = blocks[:, None, 104:108] >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    scales = (_nibbles(blocks[:, 96:104]) | high.reshape(-1, 16) << _NIBBLE).astype(np.float32) - 32
    return (_f16(blocks, 108)[:, :, None] * scales[:, :, None] * quants).reshape(-1, 256)


_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
"""What the 4-bit integers of IQ4_NL and IQ4_XS stand for: finer near zero, where most weights are."""


def _decode_iq4_nl(blocks: Bytes) -> Float32:
    return _f16(blocks, 0) * _NON_LINEAR[_nibbles(blocks[:, 2:])]


def _decode_iq4_xs(blocks: Bytes) -> Float32:
    # Eight groups of 32 with a scale of 6 bits: two of them in bytes 2-3, four in the nibbles of bytes 4-7.
    high = blocks[:, 2:4, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    low = blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 0xF
    scales = (low.reshape(-1, 8) | high.reshape(-1, 8) << _NIBBLE).astype(np.float32) - 32
    quants = _NON_LINEAR[_nibbles(blocks[:, 8:].reshape(-1, 16))].reshape(-1, 8, 32)
    return ((_f16(blocks, 0) * scales)[:, :, None] * quants).reshape(-1, 256)


def _two_bits(packed: Bytes) -> Bytes:
    """Q2_K and Q3_K [n, 64] -> [n, 8, 32]: each 32 bytes hold the low two bits of four groups."""
    quants = packed.reshape(-1, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & np.uint8(3)
    return quants.reshape(-1, 8, 32)


def _apply_k_scales(blocks: Bytes, quants: Bytes) -> Float32:
    """Q4_K and Q5_K: eight groups of 32, each with a 6-bit scale and a 6-bit minimum; quants [n, 8, 32]."""
    scales, minimums = _k_scales(blocks[:, 4:16])
    scale = _f16(blocks, 0) * scales.astype(np.float32)
    minimum = _f16(blocks, 2) * minimums.astype(np.float32)
    values: Float32 = scale[:, :, None] * quants.astype(np.float32) - minimum[:, :, None]
    return values.reshape(-1, 256)


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Twelve bytes to eight scales and eight minimums of 6 bits, [n, 8] each.

    Bytes 0-3 and 4-7 hold scales and minimums of groups 0-3 in their lower 6 bits, and in their upper
    2 bits those of groups 4-7, whose lower 4 bits are the two nibbles of bytes 8-11.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, third & 0xF | first >> 6 << 4], axis=1)
    minimums = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minimums


def _f16(blocks: Bytes, offset: int) -> Float32:
    """The float16 at ``offset`` of each block [n, 1]."""
    return np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Lower nibbles of all bytes, then the upper ones: [n, k] -> [n, 2 k]."""
    return np.concatenate([packed & 0xF, packed >> 4], axis=1)


def _bits(packed: Bytes) -> Bytes:
    """Bits of each row of bytes, least significant first: [n, k] -> [n, 8 k]."""
    return np.unpackbits(packed, axis=1, bitorder="little")


_DECODERS: dict[Quantization, Callable[[Bytes], Float32]] = {
    Quantization.F32: _decode_f32,
    Quantization.F16: _decode_f16,
    Quantization.BF16: _decode_bf16,
    Quantization.Q4_0: _decode_q4_0,
    Quantization.Q4_1: _decode_q4_1,
    Quantization.Q5_0: _decode_q5_0,
    Quantization.Q5_1: _decode_q5_1,
    Quantization.Q8_0: _decode_q8_0,
    Quantization.Q4_K: _decode_q4_k,
    Quantization.Q5_K: _decode_q5_k,
    Quantization.Q6_K: _decode_q6_k,
    Quantization.Q2_K: _decode_q2_k,
    Quantization.Q3_K: _decode_q3_k,
    Quantization.IQ4_NL: _decode_iq4_nl,
    Quantization.IQ4_XS: _decode_iq4_xs,
}


# ---- Encoders: [num_blocks, num_elements] -> [num_blocks, num_bytes] ------------------------------------


def _encode_f32(values: Float32) -> Bytes:
    return values.astype("<f4").view(np.uint8)


def _encode_f16(values: Float32) -> Bytes:
    return values.astype("<f2").view(np.uint8)


def _encode_bf16(values: Float32) -> Bytes:
    """Round to nearest, ties to even; a NaN stays one because its upper half is kept non-zero."""
    bits = values.view(np.uint32)
    rounded = bits + (0x7FFF + (bits >> 16 & 1))
    kept = np.where(np.isnan(values), bits | 0x400000, rounded)
    return (kept >> 16).astype("<u2").view(np.uint8)


def _encode_q4_0(values: Float32) -> Bytes:
    """The element of largest magnitude becomes -8, so that one scale serves the lopsided range -8 … 7."""
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    scale = largest / np.float32(-8)
    quants = np.clip(np.floor(values * _inverse(scale) + np.float32(8.5)), 0, 15)
    return np.concatenate([_encode_f16(scale), _pack_nibbles(quants)], axis=1)


def _encode_q4_1(values: Float32) -> Bytes:
    minimum = values.min(axis=1, keepdims=True)
    scale = (values.max(axis=1, keepdims=True) - minimum) / np.float32(15)
    quants = np.clip(np.floor((values - minimum) * _inverse(scale) + np.float32(0.5)), 0, 15)
    return np.concatenate([_encode_f16(scale), _encode_f16(minimum), _pack_nibbles(quants)], axis=1)


def _encode_q8_0(values: Float32) -> Bytes:
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    quants = np.rint(values * _inverse(scale)).astype(np.int8)
    return np.concatenate([_encode_f16(scale), quants.view(np.uint8)], axis=1)


def _inverse(scale: Float32) -> Float32:
    """1 / scale, and 0 for a block of equal elements, whose scale is 0."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _pack_nibbles(quants: Float32) -> Bytes:
    low, high = np.split(quants.astype(np.uint8), 2, axis=1)
    return low | high << _NIBBLE


_ENCODERS: dict[Quantization, Callable[[Float32], Bytes]] = {
    Quantization.F32: _encode_f32,
    Quantization.F16: _encode_f16,
    Quantization.BF16: _encode_bf16,
    Quantization.Q4_0: _encode_q4_0,
    Quantization.Q4_1: _encode_q4_1,
    Quantization.Q8_0: _encode_q8_0,
}
