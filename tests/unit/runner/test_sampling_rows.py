"""Sampling parameters as rows of arrays, and what is gathered of them."""

import numpy as np
import pytest

from octavo.runner.penalties import NO_PENALTIES
from octavo.runner.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest

VOCAB_SIZE = 50
EOS = 3


@pytest.fixture
def rows():
    return SamplingRows(4, VOCAB_SIZE, frozenset({EOS}))


def request(prompt=(1, 2), output=(), seed=5, choice_index=0, **params):
    return NewRequest(prompt, output, SamplingParams(**params), seed, choice_index)


def gather(rows, *indices, positions=None):
    positions = positions or [2] * len(indices)
    return rows.gather(np.array(indices, np.intp), np.array(positions, np.int32))


def test_parameters_come_out_in_the_order_asked_for(rows):
    rows.set(0, request(temperature=0.5, top_k=7, top_p=0.9, min_p=0.1, seed=2**64 - 1))
    rows.set(2, request(temperature=2.0, top_k=-1, seed=9, choice_index=3))
    got = gather(rows, 2, 0, positions=[8, 6])
    assert got.temperature.tolist() == [2.0, 0.5]
    assert got.top_k.tolist() == [0, 7]
    assert got.top_p.tolist() == [1.0, pytest.approx(0.9)]
    assert got.min_p.tolist() == [0.0, pytest.approx(0.1)]
    assert got.seeds.tolist() == [9, 2**64 - 1]
    assert got.choice_indices.tolist() == [3, 0]
    assert got.positions.tolist() == [8, 6]
    assert got.penalty_rows.tolist() == [NO_PENALTIES] * 2
    assert got.num_top_logprobs is None


def test_the_most_top_logprobs_anybody_wants(rows):
    rows.set(0, request(logprobs=2))
    rows.set(1, request(logprobs=None))
    rows.set(2, request(logprobs=5))
    assert gather(rows, 0, 1, 2).num_top_logprobs == 5
    assert gather(rows, 1).num_top_logprobs is None
    rows.set(1, request(logprobs=0))
    assert gather(rows, 1).num_top_logprobs == 0


def test_the_same_rows_are_the_same_arrays_until_one_is_filled_anew(rows):
    rows.set(0, request(top_k=1))
    rows.set(1, request(top_k=2))
    first = gather(rows, 0, 1, positions=[7, 8])
    again = gather(rows, 0, 1, positions=[8, 9])
    assert again is first
    assert again.positions.tolist() == [8, 9]
    assert gather(rows, 1, 0).top_k.tolist() == [2, 1]
    rows.clear(1)
    rows.set(1, request(top_k=3))
    assert gather(rows, 0, 1).top_k.tolist() == [1, 3]


def test_rows_with_bans_are_gathered_each_time(rows):
    rows.set(0, request(min_tokens=1))
    assert gather(rows, 0, positions=[2]).banned_token_ids.tolist() == [EOS]
    assert gather(rows, 0, positions=[3]).banned_token_ids.tolist() == []


@pytest.mark.parametrize(
    ("params", "name", "expected"),
    [
        ({"temperature": 1e-6}, "temperature", 0.0),
        ({"temperature": 1e300}, "temperature", np.float32(1e30)),
        ({"repetition_penalty": 1e-300}, "repetition_penalty", np.float32(1e-30)),
        ({"repetition_penalty": 1e300}, "repetition_penalty", np.float32(1e30)),
        ({"top_k": 2**63 - 1}, "top_k", VOCAB_SIZE),
        ({"presence_penalty": -2.0}, "presence_penalty", -2.0),
    ],
)
def test_numbers_that_float32_cannot_hold_are_cut(rows, params, name, expected):
    rows.set(1, request(**params))
    assert getattr(gather(rows, 1), name)[0] == expected


def test_biases_are_laid_behind_each_other(rows):
    rows.set(0, request(logit_bias={4: 1.5, 6: -2.0}))
    rows.set(1, request())
    rows.set(2, request(logit_bias={9: 3.0}))
    got = gather(rows, 0, 1, 2)
    assert got.bias_starts.tolist() == [0, 2, 2, 3]
    assert got.bias_token_ids.tolist() == [4, 6, 9]
    assert got.bias_values.tolist() == [1.5, -2.0, 3.0]


def test_end_tokens_are_banned_before_min_tokens(rows):
    rows.set(0, request(prompt=(1, 2), min_tokens=2, max_tokens=9, stop_token_ids=[7]))
    banned = [gather(rows, 0, positions=[p]).banned_token_ids.tolist() for p in (2, 3, 4, 5)]
    assert banned == [[3, 7], [3, 7], [], []]
    rows.set(1, request(prompt=(1, 2), min_tokens=2, max_tokens=9, ignore_eos=True))
    both = gather(rows, 0, 1, positions=[2, 2])
    assert both.banned_starts.tolist() == [0, 2, 2]


@pytest.mark.parametrize("min_tokens", [2**31 - 1, 2**31, 2**32 + 4, 2**63 - 2])
def test_any_min_tokens_bans_end_tokens_as_far_as_a_sequence_can_get(rows, min_tokens):
    rows.set(0, request(min_tokens=min_tokens, max_tokens=min_tokens + 1))
    assert gather(rows, 0, positions=[2**31 - 2]).banned_token_ids.tolist() == [EOS]


def test_a_small_vocabulary_limits_top_logprobs():
    rows = SamplingRows(1, 7, frozenset({EOS}))
    rows.set(0, request(logprobs=20))
    assert gather(rows, 0).num_top_logprobs == 7


def test_penalties_know_the_prompt_and_the_output_so_far(rows):
    rows.set(0, request())
    rows.set(1, request(prompt=(4, 4, 5), output=(6, 6, 7), frequency_penalty=0.5))
    got = gather(rows, 0, 1)
    row = got.penalty_rows[1]
    assert got.penalty_rows[0] == NO_PENALTIES
    assert np.flatnonzero(got.prompt_tokens[row]).tolist() == [4, 5]
    assert {int(t): int(got.output_counts[row, t]) for t in np.flatnonzero(got.output_counts[row])} == {
        6: 2,
        7: 1,
    }
    rows.count(np.array([0, 1], np.int32), np.array([9, 6], np.int32))
    assert gather(rows, 1).output_counts[row, [6, 9]].tolist() == [3, 0]


def test_a_penalty_row_that_is_used_again_is_clean(rows):
    rows.set(0, request(prompt=(4,), output=(6,), presence_penalty=1.0))
    rows.clear(0)
    rows.set(0, request(prompt=(8,), presence_penalty=1.0))
    got = gather(rows, 0)
    row = got.penalty_rows[0]
    assert np.flatnonzero(got.prompt_tokens[row]).tolist() == [8]
    assert not got.output_counts[row].any()


def test_memory_for_penalties_comes_with_the_first_request_that_has_them(rows):
    assert rows.penalties.output_counts.shape == (0, VOCAB_SIZE)
    for row in range(4):
        rows.set(row, request(prompt=(row,), repetition_penalty=1.5))
    got = gather(rows, 0, 1, 2, 3)
    assert len(set(got.penalty_rows.tolist())) == 4
    assert got.output_counts.shape == (4, VOCAB_SIZE)
    assert [np.flatnonzero(got.prompt_tokens[r]).tolist() for r in got.penalty_rows] == [[0], [1], [2], [3]]


def test_clearing_a_row_without_penalties_gives_nothing_back(rows):
    rows.set(0, request())
    rows.clear(0)
    rows.set(1, request(presence_penalty=1.0))
    rows.set(2, request(presence_penalty=1.0))
    assert len(set(gather(rows, 1, 2).penalty_rows.tolist())) == 2


def test_a_table_of_penalties_that_finds_no_memory_grows_not_at_all(rows, monkeypatch):
    """One longer than the other would fail every later step."""
    rows.set(0, request(frequency_penalty=0.5))

    def zeros(shape, dtype):
        if dtype is np.uint8:
            raise MemoryError
        return np.empty(shape, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(np, "zeros", zeros)
        with pytest.raises(MemoryError):
            rows.set(1, request(frequency_penalty=0.5))
    rows.clear(1)
    assert len(rows.penalties.output_counts) == len(rows.penalties.prompt_tokens) == 1
    rows.set(1, request(frequency_penalty=0.5))
    assert gather(rows, 0, 1).penalty_rows.tolist() == [0, 1]
