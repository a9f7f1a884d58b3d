"""How requests end: stop verdicts, aborts in every state, errors."""

import pytest
from sched_harness import Harness

from octavo.errors import InvariantError
from octavo.sched.output import RunnerOutput
from octavo.sched.request import FinishReason


def test_stop_token_ends_the_request():
    """T70: sampled 10, 42, 12; 42 is a stop token."""
    h = Harness()
    request = h.add("r", [1], max_tokens=10, stop_token_ids=[42])
    h.runner.forced_tokens["r"] = [10, 42, 12]
    h.run()
    assert request.output_token_ids == [10, 42]
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, 42)
    assert [(u.token_id, u.finish_reason, u.stop_reason) for u in h.updates] == [
        (10, None, None),
        (42, FinishReason.STOP, 42),
    ]


def test_max_tokens_ends_the_request():
    """T70."""
    h = Harness()
    request = h.add("r", [1], max_tokens=2)
    h.run()
    assert (request.num_output_tokens, request.finish_reason) == (2, FinishReason.LENGTH)


def test_eos_ends_the_request_unless_ignored():
    """T70."""
    h = Harness()
    stops = h.add("stops", [1], max_tokens=5, eos_token_ids=frozenset({2}))
    goes_on = h.add("goes on", [1], max_tokens=5, eos_token_ids=frozenset({2}), ignore_eos=True)
    h.runner.forced_tokens = {name: [10, 2, 3, 4, 5] for name in ("stops", "goes on")}
    h.run()
    assert (stops.output_token_ids, stops.finish_reason, stops.stop_reason) == ([10, 2], "stop", None)
    assert (goes_on.num_output_tokens, goes_on.finish_reason) == (5, "length")


def test_max_model_len_wins_over_min_tokens():
    """T71."""
    h = Harness(max_model_len=10)
    request = h.add("r", [1, 2, 3], max_tokens=500, min_tokens=500)
    h.run()
    assert (request.num_output_tokens, request.finish_reason) == (7, FinishReason.LENGTH)


def test_nothing_is_left_behind():
    """T72: five requests of 10 prompt and 10 output tokens."""
    h = Harness(block_size=16)
    for index in range(5):
        h.add(str(index), range(index, index + 10), max_tokens=10)
    h.run()
    h.check_idle()
    assert h.kv.req_to_blocks == {}
    assert {block.ref_cnt for block in h.kv.block_pool.blocks} == {0}


def test_the_runner_is_told_which_rows_to_drop():
    h = Harness()
    h.add("short", [1], max_tokens=1)
    h.add("long", [2], max_tokens=3)
    h.step()
    assert h.step().released_request_ids == ["short"]
    assert h.step().released_request_ids == []


def test_releases_wait_for_a_step_that_is_run():
    h = Harness()
    h.add("a", [1], max_tokens=1)
    h.run()
    assert h.schedule() == (1, (), (), ())
    h.add("b", [1], max_tokens=1)
    assert h.step().released_request_ids == ["a"]


def test_an_id_can_be_used_again():
    h = Harness()
    for _ in range(3):
        h.add("r", [1, 2, 3], max_tokens=2)
        h.run()
        h.check_tokens("r")
    h.check_idle()


# ---- aborts ----


def test_abort_of_a_waiting_request():
    h = Harness(max_num_seqs=1)
    h.add("a", [1])
    waiting = h.add("b", [2])
    h.step()
    assert h.scheduler.finish("b", FinishReason.ABORT)
    assert waiting.finish_reason is FinishReason.ABORT
    assert h.scheduler.num_waiting == 0
    h.run()
    assert not any(update.request_id == "b" for update in h.updates)
    h.check_idle()


def test_abort_of_a_running_request_between_steps():
    h = Harness()
    h.add("a", range(9))
    h.step()
    assert h.scheduler.finish("a", FinishReason.ABORT)
    assert not h.scheduler.has_unfinished_requests
    h.check_idle()


def test_abort_of_a_preempted_request():
    h = Harness()
    h.add("a", range(9))
    h.step()
    h.scheduler.preempt_all()
    assert h.scheduler.finish("a", FinishReason.ABORT)
    h.check_idle()


def test_abort_twice_or_of_an_unknown_request_does_nothing():
    h = Harness()
    h.add("a", [1])
    assert h.scheduler.finish("a", FinishReason.ABORT)
    assert not h.scheduler.finish("a", FinishReason.ABORT)
    assert not h.scheduler.finish("never seen", FinishReason.ABORT)
    h.check_idle()


@pytest.mark.parametrize("ending", ["update", "rollback"])
def test_abort_of_a_request_in_the_step_under_way_waits_for_its_end(ending):
    h = Harness()
    request = h.add("a", range(9))
    other = h.add("b", range(50, 59))
    output = h.schedule()
    assert h.scheduler.finish("a", FinishReason.ABORT)
    assert not h.scheduler.finish("a", FinishReason.ABORT)
    assert request.finish_reason is FinishReason.ABORT
    assert h.kv.block_ids("a"), "its blocks are being written"
    assert h.scheduler.has_unfinished_requests
    if ending == "update":
        assert [update.request_id for update in h.finish_step(output)] == ["b"]
    else:
        h.fail_step(output)
    assert "a" not in h.kv.req_to_blocks
    assert request.output_token_ids == []
    assert "a" in h.step().released_request_ids
    h.run()
    assert other.num_output_tokens == 4
    h.check_tokens("b")
    h.check_idle()


def test_abort_of_the_only_request_in_the_step_under_way():
    h = Harness()
    h.add("a", range(9))
    output = h.schedule()
    h.scheduler.finish("a", FinishReason.ABORT)
    assert h.finish_step(output) == []
    h.check_idle()


def test_abort_of_a_request_that_the_step_under_way_does_not_compute():
    h = Harness(max_num_batched_tokens=9)
    h.add("a", range(9))
    h.add("b", range(50, 59))
    output = h.schedule()
    assert h.scheduler.finish("b", FinishReason.ABORT)
    assert h.scheduler.num_waiting == 0
    h.finish_step(output)
    h.run()
    h.check_tokens("a")


def test_blocks_of_an_aborted_request_stay_findable_if_they_were_computed():
    h = Harness(block_size=4)
    h.add("a", range(9))
    output = h.schedule()
    h.scheduler.finish("a", FinishReason.ABORT)
    h.finish_step(output)
    h.add("b", range(9))
    h.run()
    assert h.requests["b"].num_cached_tokens == 8
    h.check_tokens("b")


def test_a_stop_string_ends_a_request_from_outside():
    h = Harness()
    request = h.add("a", [1], max_tokens=9)
    h.step()
    assert h.scheduler.finish("a", FinishReason.STOP, stop_reason="END")
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, "END")
    h.check_idle()


# ---- errors ----


def test_an_error_ends_that_request_alone():
    h = Harness(block_size=4)
    bad = h.add("bad", range(9))
    h.add("good", range(100, 109))
    h.runner.failing_ids.add("bad")
    h.step()
    (update,) = (update for update in h.updates if update.request_id == "bad")
    assert (update.finish_reason, update.error) == (FinishReason.ERROR, "NaN in the logits")
    assert bad.finish_reason is FinishReason.ERROR
    h.run()
    h.check_tokens("good")
    h.check_idle()


def test_nobody_finds_what_a_failed_computation_wrote():
    h = Harness(block_size=4)
    h.add("bad", range(17))
    h.runner.failing_ids.add("bad")
    h.step()
    h.add("next", range(17))
    h.run()
    assert h.requests["next"].num_cached_tokens == 0
    h.check_tokens("next")
    h.check_idle()


def test_what_was_computed_in_steps_before_the_failure_stays_findable():
    h = Harness(block_size=4, max_num_batched_tokens=8)
    h.add("bad", range(16))
    h.step()
    h.runner.failing_ids.add("bad")
    h.step()
    h.add("next", range(17))
    h.run()
    assert h.requests["next"].num_cached_tokens == 8
    h.check_tokens("next")
    h.check_idle()


def test_who_shared_a_failed_computation_and_sampled_fails_too():
    h = Harness(block_size=4)
    h.add("bad", range(17))
    h.add("sharer", [*range(16), 7])
    h.runner.failing_ids.add("bad")
    h.step()
    assert h.requests["sharer"].finish_reason is FinishReason.ERROR
    h.add("next", range(17))
    h.run()
    h.check_tokens("next")
    h.check_idle()


@pytest.mark.parametrize("fate", ["goes on", "is aborted"])
def test_who_shared_a_failed_computation_and_did_not_sample_starts_over(fate):
    h = Harness(block_size=4, max_num_batched_tokens=20)
    h.add("bad", range(12))
    sharer = h.add("sharer", range(24))
    h.runner.failing_ids.add("bad")
    output = h.schedule()
    assert [len(s.token_ids) for s in output.scheduled] == [12, 8]
    if fate == "is aborted":
        h.scheduler.finish("sharer", FinishReason.ABORT)
    h.finish_step(output)
    assert h.kv.lookup(h.request("twin", range(24))).num_tokens == 0
    del h.requests["twin"]
    h.run()
    assert sharer.finish_reason == ("abort" if fate == "is aborted" else "length")
    h.check_tokens("sharer")
    h.check_idle()


def test_what_an_aborted_request_computed_wrongly_is_not_findable():
    h = Harness(block_size=4)
    h.add("bad", range(17))
    h.runner.failing_ids.add("bad")
    output = h.schedule()
    h.scheduler.finish("bad", FinishReason.ABORT)
    assert h.finish_step(output) == []
    h.add("next", range(17))
    h.run()
    h.check_tokens("next")
    h.check_idle()


def test_a_missing_result_is_an_error():
    h = Harness()
    h.add("r", range(9))
    output = h.schedule()
    (update,) = h.scheduler.update(output, RunnerOutput({}))
    assert update.error == "the runner returned no token"
    h.check_idle()


# ---- steps alternate ----


def test_a_step_must_end_before_the_next_one_begins():
    h = Harness()
    h.add("r", [1], max_tokens=3)
    output = h.schedule()
    with pytest.raises(InvariantError, match="schedule while step 1 is under way"):
        h.scheduler.schedule()
    with pytest.raises(InvariantError, match="preempt_all while step 1 is under way"):
        h.scheduler.preempt_all()
    h.finish_step(output)


def test_only_the_step_under_way_can_be_ended():
    h = Harness()
    h.add("r", [1], max_tokens=3)
    first = h.step()
    with pytest.raises(InvariantError, match="step 1 is not under way"):
        h.scheduler.update(first, RunnerOutput({}))
    second = h.schedule()
    with pytest.raises(InvariantError, match="step 1 is not under way; the last one was 2"):
        h.scheduler.rollback(first)
    h.finish_step(second)
    h.run()
    h.check_tokens("r")
