"""`InputBatch`: a scheduler output laid out as the arrays that an interpreter reads."""

from collections.abc import Sequence

import numpy as np

from octavo.kernels.adapter import NO_ADAPTER
from octavo.kernels.interpreter import IntArray, StepInput
from octavo.runner.request_rows import RequestRows
from octavo.sched.output import ScheduledRequest


class InputBatch:
    """Persistent arrays, filled anew for each step. Python runs per request here, never per token.

    Args:
        rows: where block tables are.
        max_num_batched_tokens: most tokens of one step.
        block_size: tokens per block.
    """

    def __init__(self, rows: RequestRows, max_num_batched_tokens: int, *, block_size: int) -> None:
        max_num_seqs = rows.block_tables.shape[0]
        self._rows = rows
        self._block_size = block_size
        self._token_ids: IntArray = np.zeros(max_num_batched_tokens, np.int32)
        self._positions: IntArray = np.zeros(max_num_batched_tokens, np.int32)
        self._counting: IntArray = np.arange(max_num_batched_tokens, dtype=np.int32)
        self._query_start_loc: IntArray = np.zeros(max_num_seqs + 1, np.int32)
        self._seq_lens: IntArray = np.zeros(max_num_seqs, np.int32)

    def fill(self, scheduled: Sequence[ScheduledRequest]) -> StepInput:
        """Lay out a step; the arrays are views, valid until the next call.

        Args:
            scheduled: at least one request, each with a row.
        """
        num_requests = len(scheduled)
        query_start_loc = self._query_start_loc[: num_requests + 1]
        query_lens = np.array([len(request.token_ids) for request in scheduled], np.int32)
        np.cumsum(query_lens, out=query_start_loc[1:])
        num_computed = np.array([request.num_computed_tokens for request in scheduled], np.int32)
        seq_lens = np.add(num_computed, query_lens, out=self._seq_lens[:num_requests])
        num_tokens = int(query_start_loc[-1])
        samples = np.array([request.samples for request in scheduled], np.bool_)
        return StepInput(
            token_ids=self._fill_token_ids(scheduled, query_start_loc.tolist()),
            positions=self._fill_positions(num_tokens, query_lens, num_computed - query_start_loc[:-1]),
            query_start_loc=query_start_loc,
            seq_lens=seq_lens,
            block_tables=self._gather_block_tables(scheduled, int(seq_lens.max())),
            logit_rows=query_start_loc[1:][samples] - np.int32(1),
            adapter_slots=self._adapter_slots(scheduled),
        )

    def _fill_token_ids(self, scheduled: Sequence[ScheduledRequest], starts: list[int]) -> IntArray:
        token_ids = self._token_ids
        for i, request in enumerate(scheduled):
            token_ids[starts[i] : starts[i + 1]] = request.token_ids
        return token_ids[: starts[-1]]

    def _fill_positions(self, num_tokens: int, query_lens: IntArray, offsets: IntArray) -> IntArray:
        """A row's position is its place in the step plus its request's offset."""
        return np.add(
            self._counting[:num_tokens], np.repeat(offsets, query_lens), out=self._positions[:num_tokens]
        )

    def _adapter_slots(self, scheduled: Sequence[ScheduledRequest]) -> IntArray | None:
        slots = [self._rows[request.request_id].adapter_slot for request in scheduled]
        if all(slot is None for slot in slots):
            return None  # nobody pays for adapters that nobody uses
        return np.array([NO_ADAPTER if slot is None else slot for slot in slots], np.int32)

    def _gather_block_tables(self, scheduled: Sequence[ScheduledRequest], max_seq_len: int) -> IntArray:
        """The tables in the order of the step, as wide as its longest sequence needs."""
        rows = [self._rows[request.request_id].index for request in scheduled]
        width = -(-max_seq_len // self._block_size)
        return np.ascontiguousarray(self._rows.block_tables[rows, :width])
