"""Why nothing runs, in words, and how many slots are wasted."""

from sched_harness import Harness

from octavo.sched.diagnosis import num_unfilled_slots, why_nothing_runs
from octavo.sched.pause import PauseMode


def test_unfilled_slots_are_those_behind_the_last_token_of_each_running_request():
    h = Harness(num_blocks=8, block_size=4)
    assert num_unfilled_slots(h.scheduler) == 0
    h.add("a", range(5), max_tokens=8)
    h.add("b", range(100, 108), max_tokens=8)
    h.step()
    assert num_unfilled_slots(h.scheduler) == 3
    h.step()
    assert num_unfilled_slots(h.scheduler) == 2 + 3


def test_a_pause_is_a_reason():
    h = Harness(num_blocks=8, block_size=4)
    h.add("a", range(5))
    h.scheduler.pause_mode = PauseMode.ALL
    assert why_nothing_runs(h.scheduler).startswith("the engine is paused")


def test_too_few_free_blocks_are_a_reason():
    h = Harness(num_blocks=4, block_size=4)
    h.add("a", range(13), max_tokens=2)
    h.step()
    h.add("b", range(100, 109))
    assert why_nothing_runs(h.scheduler) == (
        "the next request, b, needs 3 blocks for its 9 tokens, but 0 of 4 are free"
    )


def test_a_prefix_that_another_computes_is_a_reason():
    h = Harness(num_blocks=16, block_size=4, max_num_batched_tokens=4)
    h.add("a", range(17))
    h.step()
    h.add("b", range(17))
    assert "waits for a prefix" in why_nothing_runs(h.scheduler)


def test_without_a_known_reason_the_numbers_are_told():
    h = Harness(num_blocks=16, block_size=4)
    h.add("a", range(6))
    assert "needs 2 blocks, of which there are 16" in why_nothing_runs(h.scheduler)
    h.step()
    assert why_nothing_runs(h.scheduler) == "1 requests are running, and none of them was given a token"
