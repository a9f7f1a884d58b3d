"""`Request`: token accounting and block hashes."""

import pytest
from sched_harness import ROOT

from octavo.errors import InvalidRequestError
from octavo.kv.hashing import BlockHasher, ExtraKey, ExtraKeyKind, request_root
from octavo.sampling_params import SamplingParams
from octavo.sched.request import FinishReason, Request, RequestStatus


class CountingHasher(BlockHasher):
    """Remembers how many blocks were hashed in all."""

    __slots__ = ("num_hashed",)

    def __init__(self, block_size):
        super().__init__(block_size, ROOT)
        self.num_hashed = 0

    def extend(self, hashes, token_ids, root):
        before = len(hashes)
        super().extend(hashes, token_ids, root)
        self.num_hashed += len(hashes) - before


def make_request(prompt, *, hasher=None, extra_keys=(), **params):
    return Request("r", prompt, SamplingParams(**params), seed=7, block_hasher=hasher, extra_keys=extra_keys)


def test_counts_follow_the_tokens():
    request = make_request([1, 2, 3], max_tokens=5)
    assert (request.num_prompt_tokens, request.num_tokens, request.num_output_tokens) == (3, 3, 0)
    request.append_token(9)
    assert (request.num_tokens, request.num_output_tokens) == (4, 1)
    assert request.token_ids == [1, 2, 3, 9]
    assert request.output_token_ids == [9]
    assert request.max_num_tokens == 8
    assert request.status is RequestStatus.WAITING
    assert not request.is_finished


def test_prompt_is_copied():
    prompt = [1, 2, 3]
    request = make_request(prompt)
    prompt.append(4)
    request.token_ids.append(5)
    assert request.prompt_token_ids == (1, 2, 3)


def test_output_token_ids_is_a_copy():
    request = make_request([1])
    request.append_token(2)
    request.output_token_ids.append(3)
    assert request.output_token_ids == [2]


def test_every_full_block_is_hashed_once_and_never_again():
    hasher = CountingHasher(4)
    request = make_request(range(6), hasher=hasher)
    assert len(request.block_hashes) == hasher.num_hashed == 1
    first = request.block_hashes[0]
    for token_id in range(6, 15):
        request.append_token(token_id)
    assert len(request.block_hashes) == hasher.num_hashed == 3
    assert request.block_hashes[0] == first
    assert request.block_hashes == make_request(range(15), hasher=BlockHasher(4, ROOT)).block_hashes


def test_without_a_hasher_nothing_is_hashed():
    request = make_request(range(8))
    request.append_token(1)
    assert request.block_hashes == []


def test_extra_keys_change_the_root_of_the_chain():
    hasher = BlockHasher(4, ROOT)
    keys = [ExtraKey(ExtraKeyKind.CACHE_SALT, "tenant")]
    salted = make_request(range(8), hasher=hasher, extra_keys=keys)
    assert salted.block_hashes[0] != make_request(range(8), hasher=hasher).block_hashes[0]
    expected = []
    hasher.extend(expected, range(8), request_root(ROOT, keys))
    assert salted.block_hashes == expected


def test_the_root_is_computed_once(monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return request_root(*arguments)

    monkeypatch.setattr("octavo.sched.request.request_root", counted)
    keys = [ExtraKey(ExtraKeyKind.CACHE_SALT, "tenant")]
    request = make_request(range(3), hasher=BlockHasher(4, ROOT), extra_keys=keys)
    for token_id in range(3, 40):
        request.append_token(token_id)
    assert (len(request.block_hashes), len(calls)) == (10, 1)


@pytest.mark.parametrize("hasher", [None, BlockHasher(4, ROOT)])
def test_long_extra_keys_are_refused(hasher):
    keys = [ExtraKey(ExtraKeyKind.CACHE_SALT, "x" * 20_000_000)]
    with pytest.raises(InvalidRequestError, match=r"cache_salt .* 20000000 characters") as caught:
        make_request(range(3), hasher=hasher, extra_keys=keys)
    assert caught.value.param == "cache_salt"


def test_seed_priority_and_arrival_do_not_change_the_hashes():
    """T19."""
    hasher = BlockHasher(4, ROOT)
    plain = make_request(range(8), hasher=hasher)
    other = Request(
        "x", range(8), SamplingParams(), seed=1, priority=3, arrival_time=9.0, block_hasher=hasher
    )
    assert other.block_hashes == plain.block_hashes


@pytest.mark.parametrize(("prompt_logprobs", "skips"), [(None, False), (0, True), (3, True)])
def test_prompt_logprobs_skip_the_prefix_lookup(prompt_logprobs, skips):
    assert make_request([1], prompt_logprobs=prompt_logprobs).skip_prefix_lookup is skips


def test_end_tokens_are_eos_and_stop_tokens():
    def end_tokens(**params):
        return Request("r", [1], SamplingParams(**params), seed=0, eos_token_ids=frozenset({2})).end_token_ids

    assert end_tokens(stop_token_ids=[5]) == {2, 5}
    assert end_tokens(stop_token_ids=[5], ignore_eos=True) == {5}


def test_repr_shows_state_but_no_content():
    keys = [ExtraKey(ExtraKeyKind.CACHE_SALT, "secret")]
    request = make_request([4711, 4712], hasher=BlockHasher(4, ROOT), extra_keys=keys)
    text = repr(request)
    assert "request_id='r'" in text
    assert "num_computed_tokens=0" in text
    assert "4711" not in text
    assert "secret" not in text


def test_finish_records_reason():
    request = make_request([1])
    request.finish(FinishReason.STOP, "END")
    assert request.is_finished
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, "END")


def test_sibling_has_the_same_prompt_under_its_own_id():
    keys = [ExtraKey(ExtraKeyKind.CACHE_SALT, "tenant")]
    first = Request(
        "a#0", range(9), SamplingParams(n=2), seed=11, eos_token_ids=frozenset({2}), arrival_time=3.5,
        priority=4, block_hasher=BlockHasher(4, ROOT), extra_keys=keys,
    )  # fmt: skip
    sibling = first.sibling("a#1", choice_index=1)
    assert (sibling.request_id, sibling.choice_index, sibling.first_sibling.request_id) == ("a#1", 1, "a#0")
    same = ("prompt_token_ids", "sampling_params", "seed", "end_token_ids", "arrival_time", "priority")
    for name in (*same, "block_hashes"):
        assert getattr(sibling, name) == getattr(first, name)
    sibling.append_token(1)
    assert first.num_tokens == 9


def test_precedence_orders_by_priority_then_arrival_then_index():
    def precedence(priority, arrival_time, index):
        request = Request("r", [1], SamplingParams(), seed=0, priority=priority, arrival_time=arrival_time)
        request.arrival_index = index
        return request.precedence

    assert precedence(0, 9.0, 9) < precedence(1, 0.0, 1)
    assert precedence(1, 1.0, 9) < precedence(1, 2.0, 1)
    assert precedence(1, 1.0, 1) < precedence(1, 1.0, 2)
