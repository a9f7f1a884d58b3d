"""Failed steps, resets and pauses: nothing changes in what is generated."""

from dataclasses import replace

import pytest
from sched_harness import Harness

from octavo.sched.pause import PauseMode


def prompt(num_tokens, start=0):
    return range(start * 10_000, start * 10_000 + num_tokens)


def run_and_check(h):
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


# ---- rollback ----


@pytest.mark.parametrize("failing_step", range(8))
def test_a_failed_step_changes_no_output(failing_step):
    h = Harness(num_blocks=32, block_size=4, max_num_batched_tokens=24)
    for index in range(3):
        h.add(str(index), [*range(18), 1000 + index], max_tokens=7)
    h.add_siblings("s", prompt(10, start=1), 3, max_tokens=5)
    for _ in range(failing_step):
        h.step()
    h.fail_step(h.schedule())
    run_and_check(h)


def test_what_a_failed_step_filled_is_not_findable():
    h = Harness(block_size=4)
    h.add("0", prompt(17))
    h.add("1", prompt(17))  # shares blocks of the same step
    h.fail_step(h.schedule())
    twin = h.request("twin", prompt(17))
    assert h.kv.lookup(twin).num_tokens == 0
    del h.requests["twin"]
    run_and_check(h)


def test_requests_of_a_failed_step_go_back_in_order():
    h = Harness(max_num_seqs=4)
    for index in range(6):
        h.add(str(index), prompt(9, start=index))
    h.step()
    output = h.schedule()
    h.fail_step(output)
    assert [request.request_id for request in h.scheduler.waiting] == list("012345")
    assert h.scheduler.num_running == 0
    resumed = h.step()
    assert [s.request_id for s in resumed.scheduled] == list("0123")
    assert all(s.new_request is not None for s in resumed.scheduled)
    run_and_check(h)


def test_a_failed_step_names_the_rows_to_drop_again():
    h = Harness()
    h.add("ended", prompt(3), max_tokens=1)
    h.add("goes on", prompt(3, start=1))
    h.step()
    output = h.schedule()
    assert output.released_request_ids == ["ended"]
    h.scheduler.rollback(output)  # the runner may have dropped it, or not have come so far
    assert h.step().released_request_ids == ["ended", "goes on"]
    run_and_check(h)


def test_copies_of_a_failed_step_are_ordered_again():
    h = Harness(block_size=16)
    h.add_siblings("r", prompt(20), 3)
    h.step()
    output = h.schedule()
    assert output.block_copies
    h.fail_step(output)
    run_and_check(h)


# ---- preempt all, reset ----


def test_reset_is_refused_while_blocks_are_in_use():
    h = Harness(block_size=4)
    h.add("0", prompt(9))
    h.step()
    assert not h.scheduler.reset_prefix_cache()
    h.run()
    assert h.scheduler.reset_prefix_cache()
    h.add("1", prompt(9))
    h.run()
    assert h.requests["1"].num_cached_tokens == 0


def test_reset_of_running_requests_changes_no_output():
    """T73: ten running requests wait again in their original order."""
    h = Harness(block_size=4, num_blocks=128)
    for index in range(10):
        h.add(str(index), prompt(9, start=index), max_tokens=6)
    for _ in range(3):
        h.step()
    assert h.scheduler.num_running == 10
    assert h.scheduler.reset_prefix_cache(reset_running=True)
    assert [request.request_id for request in h.scheduler.waiting] == [str(i) for i in range(10)]
    assert h.step().num_scheduled_tokens == 10 * 12  # nothing was found
    run_and_check(h)


def test_reset_during_a_step_is_refused():
    h = Harness()
    h.add("0", prompt(9))
    output = h.schedule()
    assert not h.scheduler.reset_prefix_cache(reset_running=True)
    assert h.scheduler.num_running == 1
    h.finish_step(output)
    run_and_check(h)


# ---- pause ----


def test_pause_of_everything_schedules_nothing_and_keeps_state():
    """T76."""
    h = Harness()
    h.add("0", prompt(9))
    h.step()
    h.add("1", prompt(9, start=1))
    h.scheduler.pause_mode = PauseMode.ALL
    assert h.schedule().scheduled == ()
    assert (h.scheduler.num_running, h.scheduler.num_waiting) == (1, 1)
    assert h.requests["0"].num_computed_tokens == 9
    h.scheduler.pause_mode = None
    run_and_check(h)


def test_pause_of_new_requests_finishes_the_running_ones():
    """T76."""
    h = Harness()
    h.add("0", prompt(9))
    h.step()
    h.add("1", prompt(9, start=1))
    h.scheduler.pause_mode = PauseMode.NEW
    h.step_until(lambda: h.requests["0"].is_finished)
    assert h.schedule().scheduled == ()
    assert h.scheduler.num_waiting == 1
    h.scheduler.pause_mode = None
    run_and_check(h)


# ---- statistics ----


def test_a_request_counts_once_when_it_is_admitted():
    """T74: refused for want of blocks first, then admitted: 1 request, 48 queries, 32 hits."""
    h = Harness(num_blocks=4, block_size=16)
    h.add("warm", prompt(33), max_tokens=1)
    h.run()
    h.add("holds", prompt(31, start=1), max_tokens=2)
    h.step()
    stats = h.scheduler.stats.prefix_cache
    before = replace(stats)
    h.add("counted", prompt(48), max_tokens=1)
    h.step()
    assert h.requests["counted"].status == "waiting"
    assert stats == before
    run_and_check(h)
    assert stats.num_requests - before.num_requests == 1
    assert stats.num_query_tokens - before.num_query_tokens == 48
    assert stats.num_hit_tokens - before.num_hit_tokens == 32


def test_a_refused_request_is_not_counted():
    """T74."""
    h = Harness(num_blocks=4, block_size=16)
    h.add("holds", prompt(31), max_tokens=4)
    h.step()
    h.add("waits", prompt(48, start=1), max_tokens=1)
    h.step()
    assert h.scheduler.num_waiting == 1
    assert h.scheduler.stats.prefix_cache.num_requests == 1
    run_and_check(h)
    assert h.scheduler.stats.prefix_cache.num_requests == 2


def test_resumed_requests_are_counted_apart():
    """T74."""
    h = Harness()
    h.add("0", prompt(9), max_tokens=6)
    h.step()
    h.scheduler.preempt_all()
    run_and_check(h)
    stats = h.scheduler.stats
    assert (stats.prefix_cache.num_requests, stats.prefix_cache.num_query_tokens) == (1, 9)
    resumed = stats.preempted_prefix_cache
    assert (resumed.num_requests, resumed.num_query_tokens, resumed.num_hit_tokens) == (1, 10, 8)


@pytest.mark.parametrize("reason", ["caching is off", "prompt logprobs"])
def test_lookups_that_do_not_happen_are_not_counted(reason):
    """T74."""
    h = Harness(enable_prefix_caching=reason != "caching is off")
    for index in range(2):
        h.add(str(index), prompt(9), prompt_logprobs=1 if reason == "prompt logprobs" else None)
    run_and_check(h)
    stats = h.scheduler.stats.prefix_cache
    assert (stats.num_requests, stats.num_query_tokens, stats.num_hit_tokens) == (0, 0, 0)
