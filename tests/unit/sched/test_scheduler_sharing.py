"""Prefixes: found, shared within a step, waited for, and forked."""

import pytest
from sched_harness import Harness, expected_tokens


def run_and_check(h):
    h.run()
    for request_id in h.requests:
        h.check_tokens(request_id)
    h.check_idle()


def test_identical_prompts_in_one_step_compute_the_shared_part_once():
    """T44: the first computes 100 tokens, the second 100 mod 16 = 4."""
    h = Harness(block_size=16, num_blocks=64)
    h.add("0", range(100))
    h.add("1", range(100))
    h.step()
    assert h.scheduled_counts == [{"0": 100, "1": 4}]
    run_and_check(h)


def test_second_turn_computes_only_what_is_new():
    """T45: 100 prompt and 200 generated tokens; the next prompt is all 300 of them."""
    h = Harness(block_size=16, num_blocks=64)
    first = h.add("0", range(100), max_tokens=200)
    h.run()
    # The 300th token itself was sampled, never computed: 299 tokens fill 18 blocks.
    h.add("1", first.token_ids)
    h.step()
    assert h.scheduled_counts[-1] == {"1": 12}
    assert h.requests["1"].num_cached_tokens == 288
    run_and_check(h)


def test_cold_and_warm_give_the_same_tokens():
    h = Harness()
    for name in ("cold", "warm"):
        h.add(name, range(21), max_tokens=9)
        h.run()
    assert h.requests["cold"].num_cached_tokens == 0
    assert h.requests["warm"].num_cached_tokens == 20
    assert h.requests["cold"].output_token_ids == h.requests["warm"].output_token_ids


@pytest.mark.parametrize("budget", [16, 50, 512, 4096])
@pytest.mark.parametrize("threshold", [0, 24])
def test_a_long_prefix_that_many_need_is_computed_once(budget, threshold):
    """32 requests arrive together, with budgets much smaller and much larger than the prefix."""
    h = Harness(
        num_blocks=512,
        block_size=16,
        max_num_batched_tokens=budget,
        max_num_seqs=64,
        long_prefill_token_threshold=threshold,
    )
    for index in range(32):
        h.add(str(index), [*range(320), 1000 + index], max_tokens=2)
    h.run()
    prefill = 320 + 32  # the prefix once, and one token of its own for each
    decode = 32
    assert sum(output.num_scheduled_tokens for output in h.outputs) == prefill + decode
    assert h.runner.num_computed_tokens == prefill + decode
    run_and_check(h)


def test_unrelated_requests_overtake_those_that_wait_for_a_prefix():
    h = Harness(block_size=4, max_num_batched_tokens=16, long_prefill_token_threshold=8)
    h.add("computes", range(40))
    h.add("waits", [*range(40), 7])
    h.add("other", range(100, 104))
    h.step()
    assert h.scheduled_counts == [{"computes": 8, "other": 4}]
    assert [request.request_id for request in h.scheduler.waiting] == ["waits"]
    run_and_check(h)


def test_skipped_requests_keep_their_order():
    h = Harness(block_size=4, max_num_batched_tokens=16, long_prefill_token_threshold=8)
    h.add("computes", range(40))
    for name in "abc":
        h.add(name, [*range(40), ord(name)])
    h.add("other", range(100, 104))
    for name in "de":
        h.add(name, [*range(40), ord(name)])
    h.step()
    assert [request.request_id for request in h.scheduler.waiting] == list("abcde")
    run_and_check(h)


def test_a_step_looks_at_a_bounded_number_of_requests_that_are_not_ready():
    h = Harness(block_size=4, max_num_batched_tokens=64, long_prefill_token_threshold=8, max_num_seqs=3)
    h.add("computes", range(40))
    for index in range(4):
        h.add(f"waits{index}", [*range(40), index])
    h.add("other", range(100, 104))
    h.step()
    assert h.scheduled_counts == [{"computes": 8}]
    assert [r.request_id for r in h.scheduler.waiting] == ["waits0", "waits1", "waits2", "waits3", "other"]
    run_and_check(h)


def test_who_waits_for_an_aborted_request_goes_on():
    h = Harness(block_size=4, max_num_batched_tokens=8)
    h.add("computes", range(40))
    h.add("waits", [*range(40), 7])
    h.step()
    assert h.scheduler.finish("computes", "abort")
    output = h.step()
    assert [s.request_id for s in output.scheduled] == ["waits"]
    assert output.scheduled[0].num_computed_tokens == 8
    h.run()
    h.check_tokens("waits")


def test_who_waits_for_a_preempted_request_goes_on():
    h = Harness(block_size=4, max_num_batched_tokens=8)
    h.add("computes", range(40))
    h.add("waits", [*range(40), 7])
    h.step()
    h.scheduler.preempt_all()
    run_and_check(h)
    assert h.runner.num_computed_tokens <= 40 + 1 + 2 * 4


def test_prompt_logprobs_neither_read_the_cache_nor_wait():
    h = Harness(block_size=4, max_num_batched_tokens=16, long_prefill_token_threshold=8)
    h.add("computes", range(40))
    h.add("all", range(40), prompt_logprobs=1)
    h.step()
    assert h.scheduled_counts == [{"computes": 8, "all": 8}]
    run_and_check(h)
    assert h.requests["all"].num_cached_tokens == 0


def test_without_prefix_caching_nobody_waits_or_shares():
    h = Harness(enable_prefix_caching=False, max_num_batched_tokens=16, long_prefill_token_threshold=8)
    h.add("0", range(20))
    h.add("1", range(20))
    h.step()
    assert h.scheduled_counts == [{"0": 8, "1": 8}]
    run_and_check(h)


# ---- n > 1 ----


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("length", [2, 15, 16, 17, 33])
def test_siblings_share_the_prompt_and_differ_afterwards(caching, length):
    h = Harness(num_blocks=64, block_size=16, enable_prefix_caching=caching)
    siblings = h.add_siblings("r", range(length), 4, max_tokens=20)
    h.step()
    assert h.scheduled_counts == [{"r#0": length}]
    h.step()
    assert h.scheduled_counts[1] == {"r#0": 1, "r#1": 1, "r#2": 1, "r#3": 1}
    run_and_check(h)
    assert len({tuple(sibling.output_token_ids) for sibling in siblings}) == 4


def test_a_sibling_copies_the_tail_that_it_writes_into():
    h = Harness(num_blocks=64, block_size=16)
    h.add_siblings("r", range(20), 3)
    h.step()
    output = h.step()
    assert len(output.block_copies) == 2
    assert len({copy.src for copy in output.block_copies}) == 1
    for sibling in output.scheduled[1:]:
        assert (sibling.num_computed_tokens, sibling.token_ids) == (19, [19])
        assert sibling.new_block_ids[0] == h.runner.rows["r#0"].block_table[0]
        assert sibling.new_block_ids[1] != h.runner.rows["r#0"].block_table[1]
    run_and_check(h)


def test_siblings_wait_until_the_prompt_is_computed():
    h = Harness(max_num_batched_tokens=8)
    h.add_siblings("r", range(20), 2)
    for _ in range(3):
        h.step()
    assert h.scheduled_counts == [{"r#0": 8}, {"r#0": 8}, {"r#0": 4}]
    h.step()
    assert h.scheduled_counts[3] == {"r#0": 1, "r#1": 1}
    run_and_check(h)


def test_siblings_of_a_request_that_ended_are_ordinary():
    h = Harness(block_size=4)
    h.add_siblings("r", range(10), 3, max_tokens=1)
    h.step()
    assert h.requests["r#0"].is_finished
    h.step()
    assert h.scheduled_counts[1] == {"r#1": 2, "r#2": 2}  # two blocks were found
    run_and_check(h)


def test_siblings_of_an_aborted_request_are_ordinary():
    h = Harness(block_size=4)
    h.add_siblings("r", range(10), 3)
    h.scheduler.finish("r#0", "abort")
    h.step()
    assert h.scheduled_counts == [{"r#1": 10, "r#2": 2}]
    h.run()
    h.check_tokens("r#1")
    h.check_tokens("r#2")


def test_a_request_that_took_over_the_id_of_the_first_sibling_is_not_forked():
    h = Harness(block_size=4, max_num_seqs=1)
    h.add_siblings("r", range(10), 2)
    h.step()
    h.scheduler.finish("r#0", "abort")
    h.add("r#0", range(50, 53))
    run_and_check(h)


def test_siblings_of_a_preempted_request_are_ordinary():
    h = Harness(block_size=4, enable_prefix_caching=False, max_num_batched_tokens=8)
    h.add_siblings("r", range(10), 2)
    h.step()
    h.scheduler.preempt_all()
    h.step()
    h.step()
    assert h.scheduled_counts[1:] == [{"r#0": 8}, {"r#0": 2, "r#1": 6}]
    run_and_check(h)


def test_a_sibling_without_room_for_its_copy_waits_without_a_trace():
    h = Harness(block_size=4, num_blocks=3, enable_prefix_caching=False)
    siblings = h.add_siblings("r", range(10), 2, max_tokens=2)
    h.step()
    output = h.step()
    assert [s.request_id for s in output.scheduled] == ["r#0"]
    assert (siblings[1].num_computed_tokens, siblings[1].status) == (0, "waiting")
    assert output.block_copies == []
    run_and_check(h)


def test_a_preempted_sibling_takes_its_own_cached_blocks_if_they_are_more():
    h = Harness(block_size=4, num_blocks=64)
    siblings = h.add_siblings("r", range(10), 2, max_tokens=30)
    for _ in range(12):
        h.step()
    num_tokens = siblings[1].num_tokens
    h.scheduler._preempt(siblings[1])
    output = h.step()
    resumed = output.scheduled[-1]
    assert resumed.request_id == "r#1"
    assert resumed.num_computed_tokens == (num_tokens - 1) // 4 * 4 > 10
    run_and_check(h)


def test_cached_tokens_of_a_sibling_are_those_it_shares():
    h = Harness(block_size=4)
    siblings = h.add_siblings("r", range(10), 2)
    h.run()
    assert [sibling.num_cached_tokens for sibling in siblings] == [0, 9]
    assert h.scheduler.stats.prefix_cache.num_requests == 1


def test_the_front_request_never_waits_when_nobody_runs():
    """Even if its first sibling comes behind it, out of reach of one step."""
    h = Harness(block_size=4, max_num_seqs=2)
    first = h.request("r#0", range(10), priority=0)
    children = [first.sibling(f"r#{index}", choice_index=index) for index in range(1, 6)]
    h.requests.update((child.request_id, child) for child in children)
    h.scheduler.add(*children)
    h.scheduler.add(first)
    run_and_check(h)


def test_alone_or_in_a_batch_the_tokens_are_the_same():
    h = Harness(num_blocks=256)
    for index in range(8):
        h.add(str(index), [index % 3, *range(index * 2)], max_tokens=6)
    h.run()
    for request in h.requests.values():
        assert request.output_token_ids == expected_tokens(request.prompt_token_ids, 6)
