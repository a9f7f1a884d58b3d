"""`SamplingParams`: what is refused, with the parameter's name, and what is the same as leaving it out."""

import math
from dataclasses import FrozenInstanceError

import pytest

from octavo.errors import InvalidRequestError
from octavo.sampling_params import MAX_SEED, MAX_STOP_LENGTH, MAX_STOP_STRINGS, SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", None),
        ("temperature", 10**400),
        pytest.param("temperature", 10**5000, id="temperature-huge"),
        ("repetition_penalty", 10**400),
        ("presence_penalty", -(10**400)),
        pytest.param("n", 10**5000, id="n-huge"),
        pytest.param("seed", 10**5000, id="seed-huge"),
        ("stop_token_ids", "x" * 1000),
        ("logit_bias", {1: 10**400}),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("top_k", 1.0),
        ("min_p", -0.1),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0.0),
        ("seed", -1),
        ("seed", MAX_SEED + 1),
        ("max_tokens", 0),
        ("max_tokens", "16"),
        ("min_tokens", 17),
        ("logprobs", 21),
        ("prompt_logprobs", -1),
        ("stop", 5),
        ("stop", b"end"),
        ("stop", [1]),
        ("stop", ["fine", ""]),
        ("stop", ["x" * (MAX_STOP_LENGTH + 1)]),
        ("stop", ["x"] * (MAX_STOP_STRINGS + 1)),
        ("stop_token_ids", 5),
        ("stop_token_ids", ["5"]),
        ("stop_token_ids", [-1]),
        ("logit_bias", [1]),
        ("logit_bias", {"1": 0.0}),
        ("logit_bias", {1: 101.0}),
        ("logit_bias", {1: math.inf}),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequestError) as refusal:
        SamplingParams(**{name: value})
    assert refusal.value.param == name
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "logit_bias"])
def test_none_is_as_good_as_empty(name):
    assert SamplingParams(**{name: None}) == SamplingParams()


def test_one_stop_string_is_a_list_of_one():
    assert SamplingParams(stop="end") == SamplingParams(stop=["end"])


def test_what_a_caller_changes_afterwards_changes_nothing():
    stop, stop_token_ids, logit_bias = ["end"], [5], {7: 1.0}
    params = SamplingParams(stop=stop, stop_token_ids=stop_token_ids, logit_bias=logit_bias)
    stop.append("other")
    stop_token_ids.append(6)
    logit_bias[8] = 2.0
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("end",), (5,), {7: 1.0})


def test_a_clone_differs_where_it_is_told_to():
    params = SamplingParams(seed=7, stop=["end"])
    assert params.clone() == params
    assert params.clone(max_tokens=32) == SamplingParams(seed=7, stop=["end"], max_tokens=32)
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        params.clone(max_tokens=0)
    with pytest.raises(FrozenInstanceError):
        params.max_tokens = 32


def test_greedy_begins_below_what_can_be_divided_by():
    assert SamplingParams(temperature=0.0).is_greedy
    assert SamplingParams(temperature=1e-6).is_greedy
    assert not SamplingParams(temperature=1e-4).is_greedy
