"""`RequestRows`: what a runner remembers of each request between steps: its row, block table and prompt."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.errors import InvariantError
from octavo.kernels.arrays import IntArray
from octavo.pooling_params import PoolingParams
from octavo.runner.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest, ScheduledRequest, SchedulerOutput, TokenLogprobs


@dataclass(slots=True, eq=False)
class RequestRow:
    """One request; lives until it ends or is preempted."""

    index: int
    """Of its row in all arrays."""
    prompt_token_ids: Sequence[int]
    sampling_params: SamplingParams
    reports_prompt_logprobs: bool
    adapter_slot: int | None = None
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Of the prompt positions computed so far."""
    pooling: PoolingParams | None = None
    """Set if an embedding is wanted instead of tokens."""
    pooled_sum: npt.NDArray[np.float64] | None = None
    """Sum of the hidden states so far [width]."""
    num_pooled_tokens: int = 0


class RequestRows:
    """Rows for up to ``max_num_seqs`` requests, and which request has which.

    Attributes:
        block_tables: int32 [max_num_seqs, max_blocks_per_request]
        sampling: the sampling parameters, by row.
        version: changes whenever a request gets or loses its row.
    """

    def __init__(self, max_num_seqs: int, max_blocks_per_request: int, sampling: SamplingRows) -> None:
        self.block_tables: IntArray = np.zeros((max_num_seqs, max_blocks_per_request), np.int32)
        self.sampling = sampling
        self.version = 0
        self._rows: dict[str, RequestRow] = {}
        self._free_rows = list(range(max_num_seqs - 1, -1, -1))

    def __getitem__(self, request_id: str) -> RequestRow:
        return self._rows[request_id]

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, output: SchedulerOutput) -> None:
        """Drop the rows of requests that left, make those of new ones, and bring block tables up to date."""
        for request_id in output.released_request_ids:
            self._drop(request_id)
        for scheduled in output.scheduled:
            if scheduled.new_request is not None:
                self._drop(scheduled.request_id)  # a step that failed may have left a row behind
                self._add(scheduled.request_id, scheduled.new_request)
            if scheduled.new_block_ids:
                self._update_block_table(scheduled)

    def _add(self, request_id: str, request: NewRequest) -> None:
        if not self._free_rows:
            raise InvariantError(f"no row for request {request_id!r}: all {len(self._rows)} are in use")
        params = request.sampling_params
        row = RequestRow(
            self._free_rows.pop(),
            request.prompt_token_ids,
            params,
            # Once per request: by the first of n siblings, and not again when it is resumed after its prompt.
            reports_prompt_logprobs=params.prompt_logprobs is not None
            and request.choice_index == 0
            and not request.output_token_ids,
            pooling=request.pooling,
            adapter_slot=request.adapter_slot,
        )
        self._rows[request_id] = row
        self.version += 1
        self.sampling.set(row.index, request)

    def _drop(self, request_id: str) -> None:
        row = self._rows.pop(request_id, None)
        if row is not None:
            self.version += 1
            self.sampling.clear(row.index)
            self._free_rows.append(row.index)

    def _update_block_table(self, scheduled: ScheduledRequest) -> None:
        start = scheduled.block_table_start
        end = start + len(scheduled.new_block_ids)
        self.block_tables[self._rows[scheduled.request_id].index, start:end] = scheduled.new_block_ids
