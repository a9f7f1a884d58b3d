"""Requests that can never fit."""

import pytest

from octavo.errors import ContextLengthError, InvalidRequestError, QueueFullError, QueueShareError
from octavo.sampling_params import SamplingParams
from octavo.sched.limits import SequenceLimit, check_queue, check_queue_tokens, exceeds_share
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


def test_one_alone_may_hold_half_and_two_a_third_each():
    def fill(*, num_places, num_tenants):
        held = [0] * num_tenants
        for _ in range(num_places):
            for tenant in range(num_tenants):
                if not exceeds_share(held[tenant], 1, num_places - sum(held)):
                    held[tenant] += 1
        return held

    assert fill(num_places=60, num_tenants=1) == [30]
    assert fill(num_places=60, num_tenants=2) == [20, 20]
    assert sum(fill(num_places=60, num_tenants=5)) <= 50


def test_who_holds_nothing_is_within_its_share():
    assert not exceeds_share(0, 100, 10)


@pytest.mark.parametrize("check", [check_queue, check_queue_tokens])
def test_a_tenant_with_its_share_is_refused_before_the_queue_is_full(check):
    check(3, 1, 10, num_own=3)
    check(9, 1, 10)
    with pytest.raises(QueueShareError, match="5 more exceed your share"):
        check(4, 5, 10, num_own=4)
    with pytest.raises(QueueFullError) as error:
        check(10, 1, 10)
    assert not isinstance(error.value, QueueShareError)
