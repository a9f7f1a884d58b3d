"""`InputBatch`: a scheduler output laid out as the arrays that an interpreter reads."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from octavo.kernels.arrays import IntArray
from octavo.kernels.interpreter import StepInput
from octavo.runner.request_rows import RequestRows
from octavo.runner.step_layout import StepLayout, step_shape
from octavo.sched.output import ScheduledRequest


class LaidOutStep(NamedTuple):
    """A step as arrays, and whose rows they hold."""

    layout: StepLayout
    step: StepInput


class InputBatch:
    """Persistent arrays. A step like the one before only gets new numbers, an array in one statement.

    Args:
        rows: where block tables are.
        max_num_batched_tokens: most tokens of one step.
        block_size: tokens per block.
    """

    def __init__(self, rows: RequestRows, max_num_batched_tokens: int, *, block_size: int) -> None:
        self._rows = rows
        self._block_size = block_size
        self._token_ids: IntArray = np.zeros(max_num_batched_tokens, np.int32)
        self._positions: IntArray = np.zeros(max_num_batched_tokens, np.int32)
        self._seq_lens: IntArray = np.zeros(len(rows.block_tables), np.int32)
        self._block_tables: IntArray = np.zeros_like(rows.block_tables)  # in the order of the step
        self._latest: LaidOutStep | None = None

    def fill(self, scheduled: Sequence[ScheduledRequest]) -> LaidOutStep:
        """Lay out a step; the arrays are filled anew by the next call.

        Args:
            scheduled: at least one request, each with a row.

        Returns:
            The same again for a step of the same layout, with other numbers in the arrays.
        """
        shape = step_shape(scheduled)
        latest = self._latest
        if latest is None or not latest.layout.is_of(shape, self._rows):
            latest = self._latest = self._lay_out(StepLayout(shape, self._rows))
            changed = list(range(len(shape)))
        else:
            changed = [i for i, request in enumerate(scheduled) if request.new_block_ids]
        self._fill_numbers(scheduled, latest)
        if changed:
            self._copy_block_tables(changed, latest)
        return latest

    def _lay_out(self, layout: StepLayout) -> LaidOutStep:
        num_requests, num_tokens = len(layout.requests), len(layout.owners)
        step = StepInput(
            token_ids=self._token_ids[:num_tokens],
            positions=self._positions[:num_tokens],
            query_start_loc=layout.query_start_loc,
            seq_lens=self._seq_lens[:num_requests],
            block_tables=self._block_tables[:num_requests],
            logit_rows=layout.logit_rows,
            only_logit_rows=layout.only_logit_rows,
            adapter_slots=layout.adapter_slots,
        )
        return LaidOutStep(layout, step)

    def _fill_numbers(self, scheduled: Sequence[ScheduledRequest], laid_out: LaidOutStep) -> None:
        layout, step = laid_out
        step.seq_lens[:] = [request.num_computed_tokens + len(request.token_ids) for request in scheduled]
        np.add(step.seq_lens[layout.owners], layout.distances, out=step.positions)
        step.token_ids[:] = list(chain.from_iterable([request.token_ids for request in scheduled]))

    def _copy_block_tables(self, places: list[int], laid_out: LaidOutStep) -> None:
        """Bring the tables at some places of the step up to date, as far as its longest sequence needs.

        Blocks come with the tokens that fill them: no table has entries beyond that before a later step.
        """
        width = -(-int(laid_out.step.seq_lens.max()) // self._block_size)
        rows = laid_out.layout.row_ids[places]
        self._block_tables[places, :width] = self._rows.block_tables[rows, :width]
