import pytest

from octavo.bench.spread import Spread, percentile, significant


def test_median_and_range():
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)


def test_a_rate_has_its_lowest_value_where_the_time_is_longest():
    assert Spread.of([1.0, 2.0, 4.0]).inverse(8.0) == Spread(4.0, 2.0, 8.0, 3)


def test_scaling_by_a_negative_factor_keeps_low_below_high():
    assert Spread.of([1.0, 2.0]).scaled(-1.0) == Spread(-1.5, -2.0, -1.0, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.5, "1,234"), (12.345, "12.3"), (0.012345, "0.0123"), (float("inf"), "inf")],
)
def test_three_significant_digits_and_no_exponent(value, text):
    assert significant(value) == text


def test_one_measurement_has_no_range():
    assert Spread.of([1.5]).format() == "1.50"
    assert Spread.of([1.0, 1.5, 3.0]).format() == "1.50 (1.00 … 3.00)"


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.75, 3), (0.99, 4), (1.0, 4)])
def test_percentiles_are_values_that_were_measured(share, value):
    assert percentile([4, 1, 3, 2], share) == value
