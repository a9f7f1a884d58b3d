import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.program import RopeSpec, RopeStyle
from octavo.kernels.rope import rope_tables_at, rotate

FREQUENCIES = (1.0, 0.1, 0.01)


def spec(style=RopeStyle.INTERLEAVED, magnitude=1.0):
    return RopeSpec(style, 6, FREQUENCIES, magnitude)


@settings(deadline=None, max_examples=50)
@given(position=st.integers(0, 200_000), magnitude=st.sampled_from([1.0, 1.19]))
def test_tables_are_float64_rounded_once(position, magnitude):
    cos, sin = rope_tables_at(spec(magnitude=magnitude), np.array([position], np.int32))
    assert cos.dtype == sin.dtype == np.float32
    for i, frequency in enumerate(FREQUENCIES):
        assert cos[0, i] == np.float32(math.cos(position * frequency) * magnitude)
        assert sin[0, i] == np.float32(math.sin(position * frequency) * magnitude)


def test_a_row_depends_on_its_position_alone():
    cos, sin = rope_tables_at(spec(), np.arange(50))
    assert cos.shape == sin.shape == (50, 3)
    some = rope_tables_at(spec(), np.array([49, 0, 7]))
    np.testing.assert_array_equal(some.cos, cos[[49, 0, 7]])
    np.testing.assert_array_equal(some.sin, sin[[49, 0, 7]])


@pytest.mark.parametrize(
    ("style", "pairs"),
    [
        (RopeStyle.INTERLEAVED, [(0, 1), (2, 3), (4, 5)]),
        (RopeStyle.HALF_SPLIT, [(0, 3), (1, 4), (2, 5)]),
    ],
)
def test_which_elements_turn_together(style, pairs):
    heads = np.random.default_rng(0).normal(size=(1, 2, 8))  # two heads; elements 6 and 7 are not rotated
    tables = rope_tables_at(spec(style), np.array([9]))
    rotated = rotate(heads, tables, spec(style))
    for (first, second), angle in zip(pairs, np.array(FREQUENCIES) * 9, strict=True):
        x0, x1 = heads[0, :, first], heads[0, :, second]
        np.testing.assert_allclose(rotated[0, :, first], x0 * np.cos(angle) - x1 * np.sin(angle), rtol=1e-6)
        np.testing.assert_allclose(rotated[0, :, second], x0 * np.sin(angle) + x1 * np.cos(angle), rtol=1e-6)
    np.testing.assert_array_equal(rotated[..., 6:], heads[..., 6:])


def test_position_zero_changes_nothing_and_the_input_is_kept():
    heads = np.random.default_rng(0).normal(size=(1, 1, 6)).astype(np.float32)
    before = heads.copy()
    rotated = rotate(heads, rope_tables_at(spec(), np.array([0])), spec())
    np.testing.assert_array_equal(rotated, before)
    rotate(heads, rope_tables_at(spec(), np.array([5])), spec())
    np.testing.assert_array_equal(heads, before)


def test_a_score_depends_on_the_distance_alone():
    query, key = np.random.default_rng(0).normal(size=(2, 1, 1, 6))

    def score(query_position, key_position):
        tables = [rope_tables_at(spec(), np.array([position])) for position in (query_position, key_position)]
        rotated = [rotate(x, table, spec()) for x, table in zip((query, key), tables, strict=True)]
        return float(np.sum(rotated[0] * rotated[1]))

    assert score(7, 3) == pytest.approx(score(1004, 1000), abs=1e-5)


def test_frequencies_that_do_not_fit_are_refused():
    wrong = RopeSpec(RopeStyle.HALF_SPLIT, 8, FREQUENCIES)
    with pytest.raises(ValueError, match="rope over 8 elements needs 4 frequencies, got 3"):
        rope_tables_at(wrong, np.array([0]))
