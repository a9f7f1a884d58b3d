from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata


def metadata(**values):
    return Metadata(Path("m.gguf"), values)


def test_returns_what_is_there():
    found = metadata(count=3, number=2.5, flag=True, text="t", texts=["a"], array=np.array([1, 2]))
    assert found.count("count") == 3
    assert found.number("number") == 2.5
    assert found.number("count") == 3.0
    assert found.flag("flag", default=False) is True
    assert found.text("text") == "t"
    assert found.texts("texts") == ["a"]
    assert found.array("array", length=2).tolist() == [1, 2]
    assert found.token_id("count", vocab_size=4) == 3


def test_defaults_stand_in_for_what_is_missing():
    found = metadata()
    assert found.count("k", default=5) == 5
    assert found.number("k", default=0.5) == 0.5
    assert found.flag("k", default=True) is True
    assert found.text("k") is None
    assert found.texts("k") is None
    assert found.array("k", length=1) is None
    assert found.token_id("k", vocab_size=1) is None


def test_a_number_given_per_layer_counts_if_all_are_equal():
    assert metadata(k=np.array([3, 3, 3])).count("k") == 3
    with pytest.raises(ModelLoadError, match="found an array of 2 values"):
        metadata(k=np.array([3, 4])).count("k")


@pytest.mark.parametrize(
    "read",
    [
        lambda m: m.count("k"),
        lambda m: m.number("k"),
        lambda m: m.flag("k", default=True),
        lambda m: m.text("k"),
        lambda m: m.texts("k"),
        lambda m: m.array("k", length=3),
        lambda m: m.token_id("k", vocab_size=9),
    ],
)
@pytest.mark.parametrize("value", [object(), -1, np.array([]), float("nan"), [1, 2] * 2])
def test_anything_else_is_one_clear_error(read, value):
    if isinstance(value, list):
        value = np.array(value)
    with pytest.raises(ModelLoadError, match=r"^m.gguf: metadata 'k' must be .*, found .*$"):
        read(metadata(k=value))


@pytest.mark.parametrize("value", [0, 1 << 24 | 1, True, 2.0, "3"])
def test_a_count_has_bounds_and_a_type(value):
    with pytest.raises(ModelLoadError, match="an integer from 1 to 16,777,216"):
        metadata(k=value).count("k")


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), 10**400, True, "1"])
def test_a_number_is_positive_and_finite(value):
    with pytest.raises(ModelLoadError, match="a positive number"):
        metadata(k=value).number("k")


@pytest.mark.parametrize("value", [-1, 8, True, "1"])
def test_a_token_id_exists(value):
    with pytest.raises(ModelLoadError, match="a token id below 8"):
        metadata(k=value).token_id("k", vocab_size=8)


def test_what_is_needed_must_be_there():
    with pytest.raises(ModelLoadError, match=r"lacks 'llama\.block_count'"):
        metadata().count("llama.block_count")


def test_long_values_are_cut_in_messages():
    with pytest.raises(ModelLoadError) as caught:
        metadata(k="x" * 10_000).count("k")
    assert len(str(caught.value)) < 200
