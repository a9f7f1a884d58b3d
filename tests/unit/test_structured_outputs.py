"""`StructuredOutputsParams`: what is refused, and that equal constraints are equal whatever they came as."""

import pytest

from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import MAX_CHOICES, MAX_CONSTRAINT_LENGTH, StructuredOutputsParams

CYCLE: dict[str, object] = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    "constraint",
    [
        {},
        {"json_object": False},
        {"json_object": True, "regex": "a"},
        {"json": {}, "choice": ["a"]},
        {"json_object": 1},
        {"json_object": True, "disable_any_whitespace": "yes"},
        {"json": "{"},
        {"json": "[1]"},
        {"json": 5},
        {"json": {"a": {1, 2}}},
        {"json": {"a": float("nan")}},
        {"json": CYCLE},
        {"json": "[" * 100_000},
        {"json": {"description": "x" * MAX_CONSTRAINT_LENGTH}},
        {"regex": ""},
        {"regex": b"a"},
        {"regex": "\ud800"},
        {"regex": "a" * (MAX_CONSTRAINT_LENGTH + 1)},
        {"grammar": ["start: x"]},
        {"choice": "yes"},
        {"choice": []},
        {"choice": ["a", ""]},
        {"choice": ["a", 1]},
        {"choice": ["a"] * (MAX_CHOICES + 1)},
        {"choice": ["a" * (MAX_CONSTRAINT_LENGTH // 2)] * 3},
    ],
    ids=lambda constraint: "-".join(constraint) or "none",
)
def test_what_is_no_constraint_is_refused(constraint):
    with pytest.raises(InvalidRequestError, match=r"^structured_outputs ") as refusal:
        StructuredOutputsParams(**constraint)
    assert refusal.value.param == "structured_outputs"
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "constraint",
    [
        {"json": {"type": "object"}},
        {"json": '{"type": "object"}'},
        {"json": {}},
        {"json_object": True},
        {"regex": r"\d+"},
        {"choice": ["yes", "no"]},
        {"choice": ("yes",)},
        {"grammar": "start: /a+/", "json_object": False},
    ],
    ids=lambda constraint: "-".join(constraint) or "none",
)
def test_every_constraint_can_be_given_alone(constraint):
    params = StructuredOutputsParams(**constraint)
    assert SamplingParams(structured_outputs=params).structured_outputs is params
    assert hash(params) == hash(StructuredOutputsParams(**constraint))


def test_a_schema_is_the_same_as_a_dict_and_as_text_and_keeps_its_order():
    schema = {"properties": {"b": {}, "a": {}}}
    params = StructuredOutputsParams(json=schema)
    schema["properties"] = {}
    assert params == StructuredOutputsParams(json='{"properties": {"b": {}, "a": {}}}')


def test_sampling_params_take_nothing_else_for_it():
    with pytest.raises(InvalidRequestError, match="StructuredOutputsParams") as refusal:
        SamplingParams(structured_outputs={"json_object": True})
    assert refusal.value.param == "structured_outputs"
