"""8-bit activations: each group by the formulas of ADR 0001, one number at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.kernels.activation_quantization import dequantize_activations, quantize_activations

groups_of_16 = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 3).map(lambda groups: 16 * groups)),
    elements=st.floats(-1e4, 1e4, width=32) | st.floats(-1, 1, width=32),
)


@settings(deadline=None, max_examples=100)
@given(groups_of_16)
def test_each_group_follows_the_formulas(rows):
    activations = quantize_activations(rows)
    for row, quants, scales in zip(rows, activations.quants, activations.scales, strict=True):
        for group, scale in enumerate(scales):
            lanes = slice(16 * group, 16 * group + 16)
            largest = np.abs(row[lanes]).max()
            assert scale == largest / np.float32(127)
            for value, quant in zip(row[lanes], quants[lanes], strict=True):
                product = value * (np.float32(127) / largest) if largest > 4e-37 else None
                assert product is None or quant == round(float(product))  # half to even, as the ADR
                assert abs(int(quant)) <= 127


@settings(deadline=None, max_examples=50)
@given(groups_of_16)
def test_what_the_integers_stand_for_is_within_half_a_step(rows):
    activations = quantize_activations(rows)
    values = dequantize_activations(activations, np.float64)
    steps = np.repeat(activations.scales.astype(np.float64), 16, axis=1)
    assert (np.abs(values - rows) <= steps * 0.5001 + 1e-37).all()


def test_a_group_of_zeros_stays_zero():
    activations = quantize_activations(np.zeros((1, 16), np.float32))
    assert not activations.quants.any()
    assert not activations.scales.any()


def test_a_nan_marks_its_group_alone():
    rows = np.ones((1, 48), np.float32)
    rows[0, 20] = np.nan
    values = dequantize_activations(quantize_activations(rows), np.float32)
    assert np.isnan(values[0, 16:32]).all()
    np.testing.assert_allclose(np.delete(values[0], range(16, 32)), 1, rtol=1e-6)


def test_a_width_that_is_no_multiple_of_16_is_refused():
    with pytest.raises(ValueError, match="multiple of 16 wide, got 20"):
        quantize_activations(np.zeros((1, 20), np.float32))
