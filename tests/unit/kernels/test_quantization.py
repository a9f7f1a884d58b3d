"""Every format bit for bit against the `gguf` package, ggml's own Python implementation."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.quantization import (
    BLOCK_LAYOUTS,
    bytes_per_row,
    dequantize,
    dequantize_rows,
    quantize,
)
from octavo.kernels.weight import Quantization, Weight

NUM_COLUMNS = 512
STEPS_OFF = {Quantization.Q4_0: 1.0, Quantization.Q4_1: 0.5, Quantization.Q8_0: 0.5}


def random_raw(seed, quantization, num_rows=7):
    """Random bytes: every integer, scale, subnormal, infinity and NaN that can be stored."""
    return np.random.default_rng(seed).integers(
        0, 256, num_rows * bytes_per_row(quantization, NUM_COLUMNS), np.uint8
    )


def gguf_dequantize(raw, quantization):
    rows = raw.reshape(-1, bytes_per_row(quantization, NUM_COLUMNS))
    if quantization is Quantization.F32:
        return rows.view(np.float32)
    if quantization is Quantization.F16:
        return rows.view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        return gguf.dequantize(rows, gguf.GGMLQuantizationType[quantization])


@pytest.mark.parametrize("quantization", Quantization)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_dequantize_is_ggml_bit_for_bit(quantization, seed):
    raw = random_raw(seed, quantization)
    with np.errstate(over="ignore", invalid="ignore"):
        got = dequantize(Weight("w", (7, NUM_COLUMNS), quantization, raw))
    want = gguf_dequantize(raw, quantization)
    assert got.dtype == np.float32
    same_bits = got.view(np.uint32) == want.view(np.uint32)
    assert (same_bits | (np.isnan(got) & np.isnan(want))).all()  # which NaN it is means nothing


@pytest.mark.parametrize("quantization", Quantization)
def test_dequantize_rows_is_those_rows_of_the_whole(quantization):
    weight = Weight("w", (7, NUM_COLUMNS), quantization, random_raw(0, quantization))
    rows = np.array([5, 0, 5, 6], np.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(dequantize_rows(weight, rows), dequantize(weight)[rows])


def test_dequantize_rows_does_not_touch_the_others():
    raw = np.zeros((3, bytes_per_row(Quantization.F32, 32)), np.uint8)
    raw[1] = 255  # a row of NaNs
    weight = Weight("w", (3, 32), Quantization.F32, raw.reshape(-1))
    assert not dequantize_rows(weight, np.array([0, 2])).any()


def test_a_vector_is_one_row():
    values = np.arange(32, dtype=np.float32)
    weight = Weight("w", (32,), Quantization.F16, quantize(values, Quantization.F16))
    np.testing.assert_array_equal(dequantize(weight), values)


@pytest.mark.parametrize("quantization", Quantization)
def test_layouts_are_those_of_gguf(quantization):
    assert BLOCK_LAYOUTS[quantization] == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quantization]]


def test_bytes_per_row():
    assert bytes_per_row(Quantization.F16, 5) == 10
    assert bytes_per_row(Quantization.Q4_1, 576) == 360
    assert bytes_per_row(Quantization.Q6_K, 512) == 420


def test_a_row_must_be_whole_blocks():
    with pytest.raises(ValueError, match="Q4_K row must be a multiple of 256 columns, got 576"):
        bytes_per_row(Quantization.Q4_K, 576)
    with pytest.raises(ValueError, match="multiple of 32 columns, got 8"):
        quantize(np.zeros((4, 8)), Quantization.Q8_0)


@pytest.mark.parametrize("quantization", STEPS_OFF)
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1e-2, 1.0, 100.0]))
def test_quantize_is_off_by_at_most_a_step(quantization, seed, size):
    values = np.random.default_rng(seed).normal(0.3, 1, (4, NUM_COLUMNS)).astype(np.float32) * size
    raw = quantize(values, quantization)
    decoded = dequantize(Weight("w", values.shape, quantization, raw))
    blocks = values.reshape(-1, 32)
    spans = {
        Quantization.Q4_0: np.abs(blocks).max(axis=1) / 8,
        Quantization.Q4_1: (blocks.max(axis=1) - blocks.min(axis=1)) / 15,
        Quantization.Q8_0: np.abs(blocks).max(axis=1) / 127,
    }
    rounding = np.abs(blocks).max(axis=1, keepdims=True) / 512  # scale and minimum are float16
    allowed = spans[quantization][:, None] * STEPS_OFF[quantization] + rounding
    assert (np.abs(decoded.reshape(-1, 32) - blocks) <= allowed).all()


@pytest.mark.parametrize("quantization", ["F32", "F16", "BF16", "Q8_0"])
def test_quantize_is_ggml_bit_for_bit_where_rounding_is_to_nearest(quantization):
    values = np.random.default_rng(0).normal(0, 1, (4, NUM_COLUMNS)).astype(np.float32)
    want = gguf.quantize(values, gguf.GGMLQuantizationType[quantization])
    np.testing.assert_array_equal(
        quantize(values, Quantization(quantization)), want.reshape(-1).view(np.uint8)
    )


@pytest.mark.parametrize("quantization", STEPS_OFF)
def test_equal_numbers_survive(quantization):
    zeros = np.zeros((1, 32), np.float32)
    decoded = dequantize(Weight("w", (1, 32), quantization, quantize(zeros, quantization)))
    np.testing.assert_array_equal(decoded, zeros)


def test_bfloat16_keeps_nan_and_infinity_and_rounds_to_even():
    values = np.array([np.nan, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    decoded = dequantize(Weight("w", (5,), Quantization.BF16, quantize(values, Quantization.BF16)))
    np.testing.assert_array_equal(decoded, [np.nan, np.inf, -np.inf, 1, 1 + 2**-6])


def test_formats_without_an_encoder_are_refused():
    with pytest.raises(ValueError, match="cannot quantise to Q6_K; to F32, F16, BF16"):
        quantize(np.zeros((1, 256)), Quantization.Q6_K)
