"""Scheduler outputs as arrays, to the last number."""

import numpy as np
import pytest

from octavo.errors import InvariantError
from octavo.runner.input_batch import InputBatch
from octavo.runner.request_rows import RequestRows
from octavo.runner.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest, ScheduledRequest, SchedulerOutput

BLOCK_SIZE = 4


def scheduled(name, start, token_ids, blocks=(), *, at=0, samples=True, new=True, prompt=None, adapter=None):
    request = (
        NewRequest(tuple(prompt or token_ids), (), SamplingParams(), 1, 0, adapter_slot=adapter)
        if new
        else None
    )
    return ScheduledRequest(name, start, token_ids, at, blocks, samples, request)


@pytest.fixture
def rows():
    return RequestRows(4, 6, SamplingRows(4, 100, frozenset({0})))


def fill(rows, *requests, released=()):
    rows.apply(SchedulerOutput(1, requests, (), released))
    return InputBatch(rows, 32, block_size=BLOCK_SIZE).fill(requests)


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
    assert step.block_tables.shape == (3, 3)  # as wide as the longest sequence needs
    assert step.block_tables[0].tolist() == [5, 2, 9]
    assert step.block_tables[1, :1].tolist() == [7]
    assert step.block_tables[2, :2].tolist() == [1, 4]
    assert step.adapter_slots is None
    arrays = [array for name in step.__slots__ if (array := getattr(step, name)) is not None]
    assert len(arrays) >= 6
    for array in arrays:
        assert array.dtype == np.int32
        assert array.flags.c_contiguous


def test_the_adapter_of_each_request_is_remembered(rows):
    step = fill(rows, scheduled("a", 0, [1], [0]), scheduled("b", 0, [2], [1], adapter=3))
    assert step.adapter_slots.tolist() == [-1, 3]
    assert step.adapter_slots.dtype == np.int32
    again = fill(rows, scheduled("b", 1, [3], new=False), scheduled("a", 1, [4], new=False))
    assert again.adapter_slots.tolist() == [3, -1]
    assert fill(rows, scheduled("a", 2, [5], new=False)).adapter_slots is None


def test_a_step_that_samples_nothing(rows):
    step = fill(rows, scheduled("a", 0, [1, 2], [0], samples=False, prompt=[1, 2, 3]))
    assert step.logit_rows.tolist() == []


def test_block_tables_grow_and_entries_are_replaced(rows):
    fill(rows, scheduled("a", 0, [1, 2, 3, 4, 5], [8, 3]))
    step = fill(rows, scheduled("a", 5, [6], (), at=2, new=False))
    assert step.block_tables.tolist() == [[8, 3]]
    step = fill(rows, scheduled("a", 6, [7], [1], at=1, new=False))  # copy-on-write of the tail
    assert step.block_tables.tolist() == [[8, 1]]
    step = fill(rows, scheduled("a", 7, [8, 9], [6], at=2, new=False))
    assert step.block_tables.tolist() == [[8, 1, 6]]


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
    assert step.block_tables.tolist() == [[2, 6]]
    assert len(rows) == 1


def test_releasing_the_unknown_is_ignored(rows):
    fill(rows, scheduled("a", 0, [1], [1]), released=["nobody"])
    assert len(rows) == 1


def test_more_requests_than_rows_is_a_broken_invariant(rows):
    with pytest.raises(InvariantError, match="no row for request 'e': all 4 are in use"):
        fill(rows, *(scheduled(name, 0, [i], [i]) for i, name in enumerate("abcde")))
