"""What a step has left to give."""

import pytest

from octavo.config import SchedulerConfig
from octavo.kv.block_table import TableChange
from octavo.sampling_params import SamplingParams
from octavo.sched.request import Request
from octavo.sched.step_plan import StepPlan, chunk_limit


def make_plan(*, token_budget=100, chunk_limit=1000, may_split=True):
    return StepPlan(
        token_budget=token_budget,
        chunk_limit=chunk_limit,
        may_split=may_split,
        admits=True,
        only=None,
        block_size=4,
    )


def make_request(num_tokens):
    return Request("r", range(num_tokens), SamplingParams(temperature=0.0), seed=3, choice_index=1)


def test_chunk_is_bounded_by_what_is_missing_by_the_limit_and_by_the_budget():
    assert make_plan().chunk(7) == 7
    assert make_plan(chunk_limit=5).chunk(7) == 5
    assert make_plan(token_budget=3).chunk(7) == 3


def test_chunk_is_everything_or_nothing_without_splitting():
    assert make_plan(may_split=False).chunk(100) == 100
    assert make_plan(may_split=False).chunk(101) == 0


def test_grant_of_everything_samples_and_reserves_nothing():
    plan, request = make_plan(), make_request(10)
    request.num_computed_tokens = 8
    plan.grant(request, 2, TableChange(2, [7]))
    scheduled = plan.scheduled["r"]
    assert scheduled == ("r", 8, [8, 9], 2, [7], True, None)
    assert (request.num_computed_tokens, plan.token_budget, plan.reserved_blocks) == (10, 98, 0)


def test_grant_of_a_part_reserves_the_blocks_of_the_rest():
    plan, request = make_plan(), make_request(17)
    plan.grant(request, 3, TableChange(0, [7]), is_new=True)
    assert not plan.scheduled["r"].samples
    assert plan.scheduled["r"].new_request == (
        tuple(range(17)),
        [],
        request.sampling_params,
        3,
        1,
        None,
        None,
    )
    assert plan.reserved_blocks == 4


def test_take_back_returns_the_tokens():
    plan = make_plan()
    plan.grant(make_request(10), 9, TableChange(0, [1, 2, 3]))
    plan.take_back("r")
    assert (plan.token_budget, plan.scheduled) == (100, {})
    plan.take_back("never scheduled")
    assert plan.token_budget == 100


@pytest.mark.parametrize(
    ("settings", "num_requests", "limit"),
    [
        ({}, 9, 1024),
        ({"long_prefill_token_threshold": 400}, 1, 1024),
        ({"long_prefill_token_threshold": 400}, 2, 400),
        ({"long_prefill_token_threshold": 400, "enable_chunked_prefill": False}, 2, 1024),
        ({"long_prefill_token_threshold": 100, "long_prefill_fair_share": True}, 2, 512),
        ({"long_prefill_token_threshold": 100, "long_prefill_fair_share": True}, 50, 100),
    ],
)
def test_chunk_limit(settings, num_requests, limit):
    """T59, T60, T61."""
    config = SchedulerConfig(max_num_batched_tokens=1024, **settings)
    assert chunk_limit(config, num_requests=num_requests) == limit
