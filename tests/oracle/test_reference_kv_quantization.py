"""K, V and queries of an int8 cache: by the formulas of ADR 0016, and what they keep of the numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.kernels.int8_vectors import Int8Vectors, dequantize_vectors, quantize_vectors
from octavo.kernels.kv_quantization import (
    dequantize_keys,
    dequantize_queries,
    quantize_keys,
    quantize_queries,
    rotation_size,
    walsh_hadamard,
)

HEAD_DIMS = (16, 32, 48, 64, 80, 96, 128, 256)
SMALLEST_EXACT = 4e-37
"""Below, 127 / a overflows, and an integer is only sure to have the right sign."""


def heads(elements):
    """[num_tokens, num_kv_heads, head_dim]"""
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 2), st.sampled_from(HEAD_DIMS))
    return hnp.arrays(np.float32, shapes, elements=elements, fill=st.nothing())


seeds = st.integers(0, 2**32)
head_dims = st.sampled_from(HEAD_DIMS)
ordinary = st.floats(-1e4, 1e4, width=32) | st.floats(-1, 1, width=32)
examples = settings(deadline=None, max_examples=60)


def random_heads(seed: int, head_dim: int, *, num_tokens: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (num_tokens, 2, head_dim)).astype(np.float32)


def hadamard_matrix(size: int) -> np.ndarray:
    """Entry (i, j) is negative where i and j have an odd number of binary ones in common."""
    return np.array([[(-1) ** (i & j).bit_count() for j in range(size)] for i in range(size)])


@pytest.mark.parametrize(
    ("head_dim", "size"), [(16, 16), (48, 16), (64, 64), (80, 16), (96, 32), (128, 128), (256, 256)]
)
def test_each_run_is_multiplied_by_the_matrix(head_dim, size):
    assert rotation_size(head_dim) == size
    whole = np.kron(np.eye(head_dim // size), hadamard_matrix(size))
    numbers = np.random.default_rng(0).integers(-99, 99, (5, 2, head_dim)).astype(np.float64)
    np.testing.assert_array_equal(walsh_hadamard(numbers), numbers @ whole)


@examples
@given(seed=seeds, head_dim=head_dims)
def test_rotation_keeps_dot_products_and_undoes_itself(seed, head_dim):
    queries, keys = (random_heads(seed + i, head_dim).astype(np.float64) for i in range(2))
    size = rotation_size(head_dim)
    rotated = (walsh_hadamard(queries) * walsh_hadamard(keys)).sum(axis=-1)
    np.testing.assert_allclose(rotated, size * (queries * keys).sum(axis=-1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(walsh_hadamard(walsh_hadamard(keys)), size * keys, rtol=1e-9, atol=1e-9)


@examples
@given(heads(ordinary))
def test_each_head_follows_the_formulas(numbers):
    stored = quantize_vectors(numbers)
    assert stored.scales.shape == numbers.shape[:-1]
    for place in np.ndindex(*stored.scales.shape):
        largest = np.abs(numbers[place]).max()
        assert stored.scales[place] == largest / np.float32(127)
        for value, quant in zip(numbers[place], stored.quants[place], strict=True):
            product = value * (np.float32(127) / largest) if largest > SMALLEST_EXACT else None
            assert product is None or quant == round(float(product))  # half to even
            assert abs(int(quant)) <= 127


@examples
@given(heads(ordinary))
def test_values_come_back_within_half_a_step(numbers):
    stored = quantize_vectors(numbers)
    errors = np.abs(dequantize_vectors(stored, np.float64) - numbers)
    assert (errors <= 0.5001 * stored.scales[..., None].astype(np.float64) + SMALLEST_EXACT).all()


@examples
@given(heads(ordinary))
def test_keys_come_back_within_half_a_step_of_the_rotated_head(numbers):
    """n rotated elements, each off by half a step, make n/2 steps of each element times n."""
    stored = quantize_keys(numbers)
    errors = np.abs(dequantize_keys(stored, np.float64) - numbers)
    steps = stored.scales[..., None].astype(np.float64)
    rounding = 1e-6 * np.abs(numbers).max(axis=-1, keepdims=True)
    assert (errors <= 0.5001 * steps + rounding + SMALLEST_EXACT).all()


def test_a_channel_that_is_large_in_every_token_costs_the_others_little():
    """What the rotation is for."""
    keys = random_heads(0, 64, num_tokens=200)
    keys[..., 7] *= 60
    others = np.arange(64) != 7
    plain = dequantize_vectors(quantize_vectors(keys), np.float64)[..., others]
    rotated = dequantize_keys(quantize_keys(keys), np.float64)[..., others]
    errors = [np.abs(numbers - keys[..., others]).mean() for numbers in (plain, rotated)]
    assert errors[1] < errors[0] / 3


@examples
@given(seed=seeds, head_dim=head_dims, scale=st.sampled_from([1.0, 0.125, 256**-0.5]))
def test_scores_of_quantised_queries_and_keys_are_near(seed, head_dim, scale):
    """In units of what the lengths of the two allow, and equal whether rotated or rotated back."""
    queries, keys = (random_heads(seed + i, head_dim) for i in range(2))
    stored, asked = quantize_keys(keys), quantize_queries(queries, scale)
    integers = (asked.quants.astype(np.int64) * stored.quants).sum(axis=-1)
    got = integers * asked.scales.astype(np.float64) * stored.scales
    back = dequantize_queries(asked, np.float64) * dequantize_keys(stored, np.float64)
    np.testing.assert_allclose(back.sum(axis=-1), got, rtol=1e-9, atol=1e-12)
    want = scale * (queries.astype(np.float64) * keys).sum(axis=-1)
    allowed = scale * np.linalg.norm(queries, axis=-1) * np.linalg.norm(keys, axis=-1)
    assert (np.abs(got - want) <= 0.02 * allowed).all()


def test_the_scale_of_queries_is_applied_in_float32():
    queries = random_heads(1, 96)
    rotated = walsh_hadamard(queries) * (np.float32(0.3) / np.float32(32))
    want, got = quantize_vectors(rotated), quantize_queries(queries, 0.3)
    np.testing.assert_array_equal(got.quants, want.quants)
    np.testing.assert_array_equal(got.scales, want.scales)


@pytest.mark.parametrize("quantize", [quantize_vectors, quantize_keys], ids=["values", "keys"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_head_nan_and_no_other(quantize, odd):
    numbers = random_heads(2, 32)
    want = quantize(numbers)
    numbers[3, 1, 5] = odd
    got = quantize(numbers)
    back = {quantize_vectors: dequantize_vectors, quantize_keys: dequantize_keys}[quantize]
    others = np.ones((20, 2), np.bool_)
    others[3, 1] = False
    assert not np.isfinite(got.scales[3, 1])
    assert not got.quants[3, 1].any()
    assert np.isnan(back(got, np.float32)[3, 1]).all()
    np.testing.assert_array_equal(got.quants[others], want.quants[others])
    np.testing.assert_array_equal(got.scales[others], want.scales[others])


@pytest.mark.parametrize("quantize", [quantize_vectors, quantize_keys], ids=["values", "keys"])
def test_zeros_stay_zero(quantize):
    stored = quantize(np.zeros((2, 1, 48), np.float32))
    assert not stored.quants.any()
    assert not stored.scales.any()


@examples
@given(heads(st.floats(-(2.0**-125), 2.0**-125, width=32, allow_subnormal=True)))
def test_numbers_near_the_smallest_stay_as_small(numbers):
    for stored, back in (
        (quantize_vectors(numbers), dequantize_vectors),
        (quantize_keys(numbers), dequantize_keys),
    ):
        assert isinstance(stored, Int8Vectors)
        assert np.isfinite(stored.scales).all()
        largest = np.abs(numbers).max(axis=-1, keepdims=True).astype(np.float64)
        returned = np.abs(back(stored, np.float64))
        assert (returned <= rotation_size(numbers.shape[-1]) * largest * 1.001 + 127 * 2.0**-149).all()


def test_the_largest_numbers_keep_their_size():
    largest = np.finfo(np.float32).max
    numbers = np.full((1, 1, 16), largest, np.float32)
    np.testing.assert_allclose(dequantize_vectors(quantize_vectors(numbers), np.float64), largest, rtol=1e-6)
    assert np.isnan(quantize_keys(numbers).scales).all()  # their sums are beyond float32
