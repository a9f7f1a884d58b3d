"""`TokenMasks`: which row has which mask, and what a row says whose matcher failed."""

import ctypes

import numpy as np

from octavo.runner.token_masks import TokenMasks
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest
from octavo.structured_outputs import StructuredOutputsParams

VOCAB_SIZE = 40
CHOICE = StructuredOutputsParams(choice=["a"])


class Counting:
    """Allows the one token that is the number of tokens so far; fails at a given number."""

    def __init__(self, num_tokens, fails_at=None):
        self.num_tokens, self.fails_at = num_tokens, fails_at

    def unsafe_compute_mask_ptr(self, trg_pointer, trg_byte_size):
        assert trg_byte_size == 8
        (ctypes.c_uint32 * 2).from_address(trg_pointer)[self.num_tokens // 32] = 1 << self.num_tokens % 32

    def consume_token(self, sampled_token):
        self.num_tokens += 1
        return True

    def is_error(self):
        return self.num_tokens == self.fails_at

    def get_error(self):
        return "too\nmuch <non-verbose/>"


class Source:
    def __init__(self, fails_at=None):
        self.fails_at = fails_at

    def matcher(self, params, output_token_ids):
        assert params is CHOICE
        return Counting(len(output_token_ids), self.fails_at)


def request(*output, constraint=CHOICE):
    return NewRequest((1,), output, SamplingParams(structured_outputs=constraint), 0, 0)


def test_rows_with_a_constraint_get_a_mask_each_and_others_none():
    masks = TokenMasks(VOCAB_SIZE, Source())
    masks.set(0, request())
    masks.set(1, request(constraint=None))
    masks.set(2, request(*range(33)))
    allowed = masks.gather(np.array([2, 1, 0], np.int32))
    assert allowed.rows.tolist() == [0, -1, 1]
    assert allowed.tokens.tolist() == [[0, 2], [1, 0]]


def test_a_matcher_goes_on_by_the_tokens_of_its_row_until_it_is_forgotten():
    masks = TokenMasks(VOCAB_SIZE, Source())
    masks.set(3, request())
    masks.advance(np.array([5, 3], np.int32), np.array([9, 9], np.int32))
    rows = np.array([3], np.int32)
    assert masks.gather(rows).tokens.tolist() == [[2, 0]]
    masks.clear(3)
    masks.clear(3)
    assert masks.gather(rows).rows.tolist() == [-1]
    assert masks.problem(3) is None


def test_where_a_matcher_fails_nothing_is_allowed_and_the_row_says_why():
    masks = TokenMasks(VOCAB_SIZE, Source(fails_at=1))
    masks.set(0, request())
    masks.set(1, request(7))
    allowed = masks.gather(np.array([0, 1], np.int32))
    assert allowed.tokens.tolist() == [[1, 0], [0, 0]]
    assert masks.problem(1).endswith("cannot be met: too much")
    assert "min_tokens" in masks.problem(0)
