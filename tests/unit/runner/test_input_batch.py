"""Scheduler outputs as arrays, to the last number."""

import numpy as np
import pytest

from octavo.errors import InvariantError
from octavo.pooling_params import PoolingParams
from octavo.runner.input_batch import InputBatch
from octavo.runner.request_rows import RequestRows
from octavo.runner.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest, ScheduledRequest, SchedulerOutput

BLOCK_SIZE = 4
DEFAULT_PARAMS = SamplingParams()


def scheduled(
    name,
    start,
    token_ids,
    blocks=(),
    *,
    at=0,
    samples=True,
    new=True,
    prompt=None,
    params=DEFAULT_PARAMS,
    **options,
):
    request = NewRequest(tuple(prompt or token_ids), (), params, 1, 0, **options) if new else None
    return ScheduledRequest(name, start, token_ids, at, blocks, samples, request)


@pytest.fixture
def rows():
    return RequestRows(4, 6, SamplingRows(4, 100, frozenset({0})))


def fill(rows, *requests, released=()):
    rows.apply(SchedulerOutput(1, requests, (), released))
    return InputBatch(rows, 32, block_size=BLOCK_SIZE).fill(requests).step


def test_a_step_of_chunks_and_single_tokens(rows):
    step = fill(
        rows,
        scheduled("a", 6, [10, 11, 12], [5, 2, 9], samples=False, prompt=range(20)),
        scheduled("b", 0, [20], [7]),
        scheduled("c", 3, [30, 31], [1, 4]),
    )
    assert step.token_ids.tolist() == [10, 11, 12, 20, 30, 31]
    assert step.positions.tolist() == [6, 7, 8, 0, 3, 4]
    assert step.query_start_loc.tolist() == [0, 3, 4, 6]
    assert step.seq_lens.tolist() == [9, 1, 5]
    assert step.logit_rows.tolist() == [3, 5]
    assert step.block_tables.shape == (3, 6)
    assert step.block_tables[0, :3].tolist() == [5, 2, 9]
    assert step.block_tables[1, :1].tolist() == [7]
    assert step.block_tables[2, :2].tolist() == [1, 4]
    assert step.adapter_slots is None
    arrays = [array for name in step.__slots__ if isinstance(array := getattr(step, name), np.ndarray)]
    assert len(arrays) >= 6
    for array in arrays:
        assert array.dtype == np.int32
        assert array.flags.c_contiguous


def test_the_adapter_of_each_request_is_remembered(rows):
    step = fill(rows, scheduled("a", 0, [1], [0]), scheduled("b", 0, [2], [1], adapter_slot=3))
    assert step.adapter_slots.tolist() == [-1, 3]
    assert step.adapter_slots.dtype == np.int32
    again = fill(rows, scheduled("b", 1, [3], new=False), scheduled("a", 1, [4], new=False))
    assert again.adapter_slots.tolist() == [3, -1]
    assert fill(rows, scheduled("a", 2, [5], new=False)).adapter_slots is None


def test_a_step_that_samples_nothing(rows):
    step = fill(rows, scheduled("a", 0, [1, 2], [0], samples=False, prompt=[1, 2, 3]))
    assert step.logit_rows.tolist() == []


@pytest.mark.parametrize(
    ("options", "only_logit_rows"),
    [
        ({}, True),
        ({"params": SamplingParams(prompt_logprobs=1)}, False),
        ({"pooling": PoolingParams()}, False),
    ],
    ids=["tokens", "log-probabilities of the prompt", "embedding"],
)
def test_rows_without_logits_are_wanted_by_those_who_report_on_a_prompt(rows, options, only_logit_rows):
    step = fill(rows, scheduled("a", 0, [1, 2], [0]), scheduled("b", 0, [1, 2, 3], [1], **options))
    assert step.only_logit_rows is only_logit_rows


def test_block_tables_grow_and_entries_are_replaced(rows):
    fill(rows, scheduled("a", 0, [1, 2, 3, 4, 5], [8, 3]))
    step = fill(rows, scheduled("a", 5, [6], (), at=2, new=False))
    assert step.block_tables[:, :2].tolist() == [[8, 3]]
    step = fill(rows, scheduled("a", 6, [7], [1], at=1, new=False))  # copy-on-write of the tail
    assert step.block_tables[:, :2].tolist() == [[8, 1]]
    step = fill(rows, scheduled("a", 7, [8, 9], [6], at=2, new=False))
    assert step.block_tables[:, :3].tolist() == [[8, 1, 6]]


def test_rows_are_reused_and_the_order_of_the_step_counts(rows):
    fill(rows, *(scheduled(name, 0, [i], [i]) for i, name in enumerate("abcd")))
    step = fill(
        rows,
        scheduled("e", 0, [9], [5]),
        scheduled("d", 1, [8], (), at=1, new=False),
        scheduled("b", 1, [7], (), at=1, new=False),
        released=["a", "c"],
    )
    assert step.block_tables[:, 0].tolist() == [5, 3, 1]
    assert len(rows) == 3


def test_a_request_that_is_new_again_gets_a_new_row(rows):
    """A step that failed left a row behind; the resumed request does not take it over."""
    fill(rows, scheduled("a", 0, [1, 2, 3, 4, 5], [8, 3]))
    step = fill(rows, scheduled("a", 0, [1, 2, 3, 4, 5], [2, 6]))
    assert step.block_tables[:, :2].tolist() == [[2, 6]]
    assert len(rows) == 1


def test_releasing_the_unknown_is_ignored(rows):
    fill(rows, scheduled("a", 0, [1], [1]), released=["nobody"])
    assert len(rows) == 1


def test_more_requests_than_rows_is_a_broken_invariant(rows):
    with pytest.raises(InvariantError, match="no row for request 'e': all 4 are in use"):
        fill(rows, *(scheduled(name, 0, [i], [i]) for i, name in enumerate("abcde")))


def test_a_step_like_the_one_before_is_the_same_object_with_other_numbers(rows):
    batch = InputBatch(rows, 32, block_size=BLOCK_SIZE)

    def step_of(*requests, released=()):
        """Laid out by a batch that goes on, which must be what a fresh one makes of it."""
        rows.apply(SchedulerOutput(1, requests, (), released))
        step = batch.fill(requests).step
        fresh = InputBatch(rows, 32, block_size=BLOCK_SIZE).fill(requests).step
        for name in ("token_ids", "positions", "query_start_loc", "seq_lens", "logit_rows"):
            np.testing.assert_array_equal(getattr(step, name), getattr(fresh, name))
        for i, seq_len in enumerate(step.seq_lens):
            used = -(-seq_len // BLOCK_SIZE)
            np.testing.assert_array_equal(step.block_tables[i, :used], fresh.block_tables[i, :used])
        return step

    def decode(position, b_blocks=(), **options):
        b = scheduled("b", position, [position + 20], b_blocks, at=position // BLOCK_SIZE, new=False)
        return step_of(scheduled("a", position - 2, [position], (), at=1, new=False), b, **options)

    step_of(scheduled("a", 0, [1], [3]), scheduled("b", 0, [1, 2, 3], [1]))
    third = decode(3)
    assert decode(4, [7]) is third
    assert third.block_tables[1, :2].tolist() == [1, 7]
    assert third.positions.tolist() == [2, 4]
    c = scheduled("c", 0, [9], [5])
    assert step_of(c, scheduled("b", 5, [8], (), at=2, new=False), released=["a"]) is not third
    step_of(scheduled("b", 6, [8], (), at=2, new=False), scheduled("c", 1, [8], (), at=1, new=False))
    # The same names again, and a request that has another row than before.
    step_of(scheduled("b", 0, [8, 9], [2]), scheduled("c", 2, [8], (), at=1, new=False))
