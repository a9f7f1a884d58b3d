"""Budget, cap, chunking, order and refusal."""

import pytest
from sched_harness import Harness

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError, ContextLengthError, InvalidRequestError, QueueFullError
from octavo.kv.manager import KVCacheManager
from octavo.sched.scheduler import Scheduler


def prompt(num_tokens, start=0):
    """Tokens that no other prompt of the test begins with, if ``start`` differs."""
    return range(start * 10_000, start * 10_000 + num_tokens)


def harness(**settings):
    return Harness(**{"num_blocks": 1024, "block_size": 16, "max_num_batched_tokens": 1024, **settings})


def add_prompts(h, lengths, **arguments):
    for index, length in enumerate(lengths):
        h.add(str(index), prompt(length, start=index), **arguments)


def test_all_requests_that_fit_are_scheduled_in_order_of_arrival():
    """T58."""
    h = harness()
    lengths = [10 + index for index in range(10)]
    add_prompts(h, lengths)
    output = h.step()
    assert [(s.request_id, s.num_scheduled_tokens) for s in output.scheduled] == [
        (str(index), length) for index, length in enumerate(lengths)
    ]
    assert output.num_scheduled_tokens == sum(lengths)
    assert (h.scheduler.num_running, h.scheduler.num_waiting) == (10, 0)


def test_long_prefill_threshold_shares_the_steps():
    """T59: budget 1024, threshold 400, three prompts of 800."""
    h = harness(long_prefill_token_threshold=400)
    add_prompts(h, [800, 800, 800])
    for _ in range(3):
        h.step()
    assert h.scheduled_counts == [
        {"0": 400, "1": 400, "2": 224},
        {"0": 400, "1": 400, "2": 224},
        {"0": 1, "1": 1, "2": 352},
    ]


def test_threshold_does_not_hold_back_a_request_that_is_alone():
    """T60."""
    h = harness(long_prefill_token_threshold=400)
    add_prompts(h, [2000])
    assert h.step().num_scheduled_tokens == 1024


def test_threshold_leaves_room_for_a_short_request():
    """T60."""
    h = harness(long_prefill_token_threshold=400)
    add_prompts(h, [2000, 10])
    h.step()
    assert h.scheduled_counts == [{"0": 400, "1": 10}]


def test_threshold_grows_to_the_fair_share():
    """T61: threshold 100, two requests, budget 1024."""
    h = harness(long_prefill_token_threshold=100, long_prefill_fair_share=True)
    add_prompts(h, [2000, 10])
    h.step()
    assert h.scheduled_counts == [{"0": 512, "1": 10}]


def test_fair_share_never_lowers_the_threshold():
    h = harness(long_prefill_token_threshold=600, long_prefill_fair_share=True)
    add_prompts(h, [2000, 10])
    h.step()
    assert h.scheduled_counts == [{"0": 600, "1": 10}]


@pytest.mark.parametrize(("chunked", "expected"), [(True, {"0": 800, "1": 224}), (False, {"0": 800})])
def test_prompt_that_does_not_fit_the_step_is_split_or_stops_admission(chunked, expected):
    """T62: without chunking the short ones behind the second prompt do not overtake it."""
    h = harness(enable_chunked_prefill=chunked, max_model_len=1000)
    add_prompts(h, [800, 800, 10, 10])
    h.step()
    assert h.scheduled_counts == [expected]


def test_without_chunking_everything_is_served_in_turn():
    h = harness(
        enable_chunked_prefill=False, max_model_len=1000, long_prefill_token_threshold=10, max_num_seqs=3
    )
    add_prompts(h, [800, 800, 10, 10], max_tokens=3)
    h.run()
    assert [counts.get("1") for counts in h.scheduled_counts[:2]] == [None, 800]
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


def test_without_chunking_a_step_must_hold_the_longest_sequence():
    config = SchedulerConfig(enable_chunked_prefill=False, max_num_batched_tokens=99)
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 99, max_model_len 100"):
        Scheduler(config, KVCacheManager(num_blocks=10, block_size=16), max_model_len=100)


def test_a_prompt_longer_than_the_step_takes_several():
    h = harness(max_num_batched_tokens=100)
    add_prompts(h, [250], max_tokens=2)
    h.run()
    assert [counts["0"] for counts in h.scheduled_counts] == [100, 100, 50, 1]
    assert [output.scheduled[0].samples for output in h.outputs] == [False, False, True, True]
    h.check_tokens("0")


def test_decoding_goes_before_new_prompts():
    h = harness(max_num_batched_tokens=32)
    add_prompts(h, [16, 16])
    h.step()
    h.add("late", prompt(100, start=9))
    h.step()
    assert h.scheduled_counts[1] == {"0": 1, "1": 1, "late": 30}


def test_more_running_requests_than_the_step_has_tokens():
    h = harness(max_num_batched_tokens=3)
    add_prompts(h, [1, 1, 1], max_tokens=5)
    h.step()
    h.add("last", [7], max_tokens=5)
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


def test_cap_on_running_requests():
    """T63."""
    h = harness(max_num_seqs=3)
    add_prompts(h, [10] * 10)
    h.step()
    assert (h.scheduler.num_running, h.scheduler.num_waiting) == (3, 7)


def test_watermark_holds_back_a_waiting_request_only_beside_running_ones():
    """T64: a tenth of 20 blocks stays free, except for decoding and for a request that is alone."""
    h = Harness(num_blocks=20, block_size=4, watermark=0.1)
    h.add("first", prompt(60), max_tokens=12)  # 15 blocks, growing to 18
    h.step()
    h.add("second", prompt(15, start=1))  # 4 more blocks would leave one
    h.step()
    assert (h.scheduler.num_running, h.scheduler.num_waiting) == (1, 1)
    h.step_until(lambda: h.requests["first"].is_finished)
    assert h.requests["first"].num_preemptions == 0
    h.add("third", prompt(79, start=2), max_tokens=1)
    h.run()
    h.check_idle()


def test_watermark_lets_a_lone_request_fill_the_cache():
    """T64."""
    h = Harness(num_blocks=20, block_size=4, watermark=0.5)
    h.add("alone", prompt(76), max_tokens=4)
    h.step()
    assert h.kv.num_free_blocks == 1
    h.run()
    h.check_tokens("alone")


def test_a_request_is_admitted_only_if_all_its_tokens_fit():
    """T65: its first chunk would fit, its prompt does not."""
    h = Harness(num_blocks=16, block_size=4, max_num_batched_tokens=49)
    h.add("first", prompt(48), max_tokens=1)
    h.add("second", prompt(20, start=1), max_tokens=1)
    output = h.schedule()
    assert [s.request_id for s in output.scheduled] == ["first"]
    h.finish_step(output)
    h.run()
    assert h.scheduler.stats.num_preemptions == 0


def test_prompts_under_way_reserve_the_blocks_they_still_need():
    """T66: the blocks that are free now are spoken for."""
    h = Harness(num_blocks=10, block_size=4, max_num_batched_tokens=16, long_prefill_token_threshold=4)
    h.add("long", prompt(32), max_tokens=1)  # 1 block now, 7 later
    h.add("fits", prompt(8, start=1), max_tokens=1)  # 1 now, 1 later
    h.add("waits", prompt(5, start=2), max_tokens=1)
    h.step()
    assert h.scheduled_counts == [{"long": 4, "fits": 4}]
    h.run()
    assert h.scheduler.stats.num_preemptions == 0
    h.check_idle()


def test_the_head_of_the_queue_is_not_overtaken_when_blocks_are_short():
    h = Harness(num_blocks=8, block_size=4)
    h.add("running", prompt(20), max_tokens=3)
    h.step()
    h.add("large", prompt(20, start=1))
    h.add("small", prompt(2, start=2))
    assert [s.request_id for s in h.step().scheduled] == ["running"]
    h.run()
    h.check_idle()


def test_priority_order_is_honoured():
    """T68."""
    h = harness(scheduling_policy="priority")
    for index, priority in enumerate([2, 0, 1]):
        h.add(str(index), prompt(10, start=index), priority=priority)
    assert [s.request_id for s in h.step().scheduled] == ["1", "2", "0"]


def test_priority_ties_go_by_arrival():
    """T68."""
    h = harness(scheduling_policy="priority")
    for index, (priority, arrival) in enumerate(zip([2, 1, 1, 0], [1.0, 3.0, 2.0, 4.0], strict=True)):
        h.add(str(index), prompt(10, start=index), priority=priority, arrival_time=arrival)
    assert [s.request_id for s in h.step().scheduled] == ["3", "2", "1", "0"]


def test_new_rows_carry_what_the_runner_needs():
    h = Harness(block_size=4)
    request = h.add("r", [1, 2, 3, 4, 5], max_tokens=2, temperature=0.5)
    first = h.step().scheduled[0]
    assert first.new_request == ((1, 2, 3, 4, 5), [], request.sampling_params, 0, 0, None, None)
    assert (first.num_computed_tokens, first.token_ids, first.samples) == (0, [1, 2, 3, 4, 5], True)
    assert (first.block_table_start, len(first.new_block_ids)) == (0, 2)
    second = h.step().scheduled[0]
    assert second.new_request is None
    assert (second.num_computed_tokens, second.token_ids) == (5, request.output_token_ids[:1])
    assert (second.block_table_start, list(second.new_block_ids)) == (2, [])


def test_a_request_that_can_never_fit_is_refused_at_once():
    h = Harness(num_blocks=4, block_size=4)
    with pytest.raises(ContextLengthError, match="has 16 tokens"):
        h.add("r", prompt(16))
    assert not h.scheduler.has_unfinished_requests


def test_the_cache_bounds_the_length_of_a_sequence():
    """A lone request that outgrows the whole cache ends by length instead of preempting itself for ever."""
    h = Harness(num_blocks=4, block_size=4)
    h.add("r", prompt(10), max_tokens=1000)
    h.run(max_steps=10)
    assert h.requests["r"].num_tokens == 16
    assert h.requests["r"].finish_reason == "length"


def test_an_id_in_use_is_refused():
    h = Harness()
    h.add("r", [1])
    with pytest.raises(InvalidRequestError, match="'r' is in use") as error:
        h.add("r", [2])
    assert error.value.param == "request_id"
    h.run()
    h.add("r", [2])  # free again


def test_requests_added_together_are_taken_all_or_none():
    h = Harness(max_waiting_requests=3)
    with pytest.raises(InvalidRequestError):
        h.scheduler.add(h.request("a", [1]), h.request("a", [2]))
    with pytest.raises(ContextLengthError):
        h.scheduler.add(h.request("a", [1]), h.request("b", prompt(5000)))
    h.add("z", [1])
    with pytest.raises(QueueFullError):
        h.scheduler.add(*(h.request(name, [1]) for name in "abc"))
    h.scheduler.finish("z", "abort")
    assert h.scheduler.num_waiting == 0
    h.scheduler.add(*(h.request(name, [1]) for name in "abc"))
    assert h.scheduler.num_waiting == 3


def test_a_full_queue_refuses_with_the_numbers():
    h = Harness(max_waiting_requests=2)
    h.add("a", [1])
    h.add("b", [1])
    with pytest.raises(QueueFullError, match="2 requests are waiting and 1 more exceed the limit of 2"):
        h.add("c", [1])
    h.step()
    h.add("c", [1])


def test_more_siblings_than_may_ever_wait_are_not_told_to_try_again():
    h = Harness(max_waiting_requests=2)
    with pytest.raises(InvalidRequestError, match=r"n is 3, but at most 2 .*raise max_waiting_requests"):
        h.add_siblings("r", [1, 2], 3)
    assert h.scheduler.num_waiting == 0


def test_nothing_to_do_is_an_empty_output():
    h = Harness()
    assert h.scheduler.schedule().scheduled == ()
    assert h.scheduler.schedule().scheduled == ()
