"""Running out of blocks."""

import pytest
from sched_harness import Harness, expected_tokens


def prompt(num_tokens, start=0):
    return range(start * 10_000, start * 10_000 + num_tokens)


def test_the_last_request_gives_way():
    """T67: two requests fill five blocks each; the 81st token of the first costs the second its own."""
    h = Harness(num_blocks=10, block_size=16)
    first, second = h.add("0", prompt(80)), h.add("1", prompt(80, start=1))
    h.runner.forced_tokens["1"] = [42]
    h.step()
    output = h.step()
    assert [s.request_id for s in output.scheduled] == ["0"]
    assert output.released_request_ids == ["1"]
    assert second.output_token_ids == [42]
    assert (second.num_computed_tokens, second.status, second.num_preemptions) == (0, "preempted", 1)
    assert (first.status, h.scheduler.num_waiting) == ("running", 1)
    assert h.scheduler.stats.num_preemptions == 1


def test_a_resumed_request_is_new_to_the_runner_and_keeps_its_output():
    h = Harness(num_blocks=10, block_size=16, enable_prefix_caching=False)
    h.add("0", prompt(80), max_tokens=3)
    second = h.add("1", prompt(80, start=1), max_tokens=6)
    h.step_until(lambda: second.num_preemptions)
    output = h.step_until(lambda: second.status == "running")
    (resumed,) = output.scheduled
    assert resumed.new_request.output_token_ids == expected_tokens(second.prompt_token_ids, 1)
    assert len(resumed.token_ids) == 81
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


def test_a_resumed_request_finds_prompt_and_output():
    """Its own blocks are still cached, generated ones included."""
    h = Harness(num_blocks=9, block_size=4)
    h.add("0", prompt(16), max_tokens=10)
    second = h.add("1", prompt(7, start=1), max_tokens=14)
    h.step_until(lambda: second.num_preemptions)
    num_tokens = second.num_tokens
    assert num_tokens > 12
    h.run()
    assert h.scheduler.stats.preempted_prefix_cache.num_hit_tokens > 7
    assert second.num_cached_tokens == 0
    for request_id in h.requests:
        h.check_tokens(request_id)


def test_a_step_that_preempts_admits_nobody():
    """Not even a request that goes before the victim and for which there is room now."""
    h = Harness(num_blocks=10, block_size=16, scheduling_policy="priority")
    h.add("0", prompt(80), priority=1)
    h.add("1", prompt(80, start=1), priority=2)
    h.step()
    h.add("small", [1], priority=0)
    assert [s.request_id for s in h.step().scheduled] == ["0"]
    assert [s.request_id for s in h.step().scheduled] == ["0", "small"]


def test_the_higher_priority_value_gives_way():
    """T69: two running requests of two blocks each and one block left; the important one needs two."""
    h = Harness(num_blocks=5, block_size=16, scheduling_policy="priority")
    low = h.add("low", prompt(32), priority=5, max_tokens=1000)
    h.step()
    high = h.add("high", prompt(32, start=1), priority=0, max_tokens=20)
    h.step()
    output = h.step_until(lambda: low.num_preemptions)
    assert high.status == "running"
    assert high.num_preemptions == 0
    assert [s.request_id for s in output.scheduled] == ["high"]


def test_a_victim_scheduled_before_gives_its_tokens_back():
    """The low one comes first in the step, has its token already, and gives it up for the one behind it."""
    h = Harness(num_blocks=5, block_size=4, scheduling_policy="priority", max_num_batched_tokens=8)
    low = h.add("low", prompt(6), priority=5, max_tokens=50)  # two blocks, room for two more tokens
    h.step()
    high = h.add("high", prompt(12, start=1), priority=0, max_tokens=3)  # three blocks, full
    h.step()
    h.step()
    assert (high.num_computed_tokens, low.status) == (12, "running")
    output = h.step()
    assert [s.request_id for s in output.scheduled] == ["high"]
    assert output.released_request_ids == ["low"]
    assert (low.status, low.num_computed_tokens) == ("preempted", 0)
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


def test_blocks_filled_by_a_victim_in_the_same_step_are_not_findable():
    """It had its slots already, but the step does not compute them: nobody may hit that block."""
    h = Harness(num_blocks=6, block_size=4, scheduling_policy="priority")
    low = h.add("low", prompt(6), priority=5, max_tokens=50)
    h.step()
    high = h.add("high", prompt(16, start=1), priority=0, max_tokens=3)
    h.step()  # low computes its 7th token, high all of its four blocks
    output = h.schedule()  # low's 8th token fills its second block; high needs a fifth
    assert low.num_preemptions == 1
    assert [s.request_id for s in output.scheduled] == ["high"]
    twin = h.request("twin", [*low.token_ids, 7])
    assert len(low.block_hashes) == 2
    assert h.kv.lookup(twin).num_tokens == 4
    h.finish_step(output)
    h.run()
    h.check_tokens("low")
    h.check_tokens("high")
    assert high.num_preemptions == 0


def test_nobody_is_skipped_when_an_earlier_request_is_preempted():
    """Requests behind the victim are served in the very same step."""
    h = Harness(num_blocks=8, block_size=4, scheduling_policy="priority")
    h.add("low", prompt(7), priority=9, max_tokens=30)
    h.step()
    for name, start in (("a", 1), ("b", 2), ("c", 3)):
        h.add(name, prompt(7, start=start), priority=1, max_tokens=4)
    h.step()
    assert h.scheduler.num_running == 4
    output = h.step_until(lambda: h.requests["low"].num_preemptions)
    assert [s.request_id for s in output.scheduled] == ["a", "b", "c"]


def test_a_request_that_preempts_itself_does_not_stop_those_behind_it():
    h = Harness(num_blocks=8, block_size=4, scheduling_policy="priority")
    low = h.add("low", prompt(7), priority=9, max_tokens=20)
    h.step()
    for name, start in (("a", 1), ("b", 2)):
        h.add(name, prompt(9, start=start), priority=1, max_tokens=3)
    assert [s.request_id for s in h.step().scheduled] == ["low", "a", "b"]
    output = h.step()
    assert low.num_preemptions == 1
    assert [s.request_id for s in output.scheduled] == ["a", "b"]
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)


def test_several_victims_resume_in_their_order():
    h = Harness(num_blocks=12, block_size=4)
    for index in range(4):
        h.add(str(index), prompt(8, start=index), max_tokens=12)
    h.run()
    finished = [update.request_id for update in h.updates if update.finish_reason]
    assert finished == ["0", "1", "2", "3"]
    assert h.scheduler.stats.num_preemptions > 1
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


def test_preempted_or_not_the_tokens_are_the_same():
    tight, roomy = (Harness(num_blocks=blocks, block_size=4) for blocks in (9, 200))
    for h in (tight, roomy):
        for index in range(6):
            h.add(str(index), prompt(9 + index, start=index % 3), max_tokens=8)
        h.run()
        h.check_idle()
    assert tight.scheduler.stats.num_preemptions > 0 == roomy.scheduler.stats.num_preemptions
    for request_id in tight.requests:
        tokens = [h.requests[request_id].output_token_ids for h in (tight, roomy)]
        assert tokens[0] == tokens[1]


# ---- only some ----


def test_only_those_who_may_run_are_in_the_step_and_the_others_lose_nothing():
    h = Harness(num_blocks=64)
    for index in range(4):
        h.add(str(index), prompt(9, start=index), max_tokens=6)
    h.step()
    h.step()
    output = h.schedule(only={"2"})
    assert [s.request_id for s in output.scheduled] == ["2"]
    assert output.scheduled[0].new_request is None  # it was running, and still is
    assert output.released_request_ids == ["3", "1", "0"]
    h.finish_step(output)
    assert [request.request_id for request in h.scheduler.waiting] == ["0", "1", "3"]
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_those_who_may_run_are_found_behind_all_others(policy):
    h = Harness(num_blocks=64, max_num_seqs=2, scheduling_policy=policy)
    for index in range(20):
        h.add(str(index), prompt(9), max_tokens=2)  # all wait for one prefix
    h.add("wanted", prompt(9, start=1), priority=7)
    before = [request.request_id for request in h.scheduler.waiting]
    output = h.schedule(only=["wanted"])
    assert [s.request_id for s in output.scheduled] == ["wanted"]
    h.finish_step(output)
    assert [request.request_id for request in h.scheduler.waiting] == [n for n in before if n != "wanted"]


def test_nobody_of_those_who_may_run_is_no_step():
    h = Harness()
    h.add("a", prompt(9))
    h.step()
    assert not h.schedule(only=[]).scheduled
    assert h.scheduler.num_running == 0
    h.run()
    h.check_tokens("a")
