"""Requests that can never fit."""

import pytest

from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.sampling_params import SamplingParams
from octavo.sched.limits import SequenceLimit
from octavo.sched.request import Request


def request_of(num_tokens):
    return Request("r", [1] * num_tokens, SamplingParams(), seed=0)


def test_the_smaller_of_model_and_cache_is_the_limit():
    assert SequenceLimit(100, num_blocks=4, block_size=16).max_num_tokens == 64
    assert SequenceLimit(50, num_blocks=4, block_size=16).max_num_tokens == 50


def test_prompt_that_leaves_room_for_one_token_is_taken():
    SequenceLimit(100, num_blocks=100, block_size=16).check(request_of(99))
    SequenceLimit(100, num_blocks=4, block_size=16).check(request_of(63))


def test_prompt_longer_than_the_model_is_refused_with_the_numbers():
    limit = SequenceLimit(100, num_blocks=100, block_size=16)
    with pytest.raises(
        ContextLengthError,
        match=r"has 100 tokens, .* maximum context length is 100, .* 100 blocks of 16, or 1600 tokens",
    ):
        limit.check(request_of(100))


def test_prompt_longer_than_the_cache_is_refused_with_the_numbers():
    limit = SequenceLimit(100, num_blocks=4, block_size=16)
    with pytest.raises(
        ContextLengthError, match=r"has 64 tokens, .* at most 64: .* 4 blocks of 16 .* takes 100, .* memory"
    ):
        limit.check(request_of(64))


def test_empty_prompt_is_refused():
    limit = SequenceLimit(100, num_blocks=4, block_size=16)
    with pytest.raises(InvalidRequestError, match="the prompt is empty") as error:
        limit.check(request_of(0))
    assert error.value.param == "prompt"
