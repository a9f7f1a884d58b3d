"""`StepLayout`: which rows of a step are whose; from one decoding step to the next it stays the same."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from octavo.kernels.adapter import NO_ADAPTER
from octavo.kernels.arrays import IndexArray, IntArray
from octavo.runner.request_rows import RequestRow, RequestRows
from octavo.sched.output import ScheduledRequest

StepShape = list[tuple[str, int, bool]]
"""Of each request its id, its number of tokens and whether it samples: all that a layout depends on."""


def step_shape(scheduled: Sequence[ScheduledRequest]) -> StepShape:
    """Steps with the same shape have the same layout, as long as their requests keep their rows."""
    return [(request.request_id, len(request.token_ids), request.samples) for request in scheduled]


class RequestShare(NamedTuple):
    """One request's part of a step."""

    row: RequestRow
    scheduled: ScheduledRequest
    first_row: int
    """The step's row of its first token."""


class StepLayout:
    """What the shape of a step says about its rows.

    Places are those of requests in the step.

    Attributes:
        request_ids: by place.
        requests: what is remembered of each, by place.
        row_ids: [num_requests]; where each request is in the arrays of all requests.
        query_start_loc: [num_requests + 1]
        owners: [num_tokens]; place of the request whose row it is.
        distances: [num_tokens]; to the end of the same request's rows, negative.
        sampled: [num_sampled]; places of the requests that sample.
        sampled_ids: of these requests.
        sampled_row_ids: [num_sampled]
        logit_rows: [num_sampled]; the last row of each of them.
        adapter_slots: [num_requests]; ``None`` if nobody has an adapter.
        pooled: places of requests that want an embedding.
        reporting: places of requests that have log-probabilities of their prompts to report, or had.
        only_logit_rows: nobody wants to know more of any other row than its K and V.
    """

    def __init__(self, shape: StepShape, rows: RequestRows) -> None:
        self._shape = shape
        self._version = rows.version
        self.request_ids = [request_id for request_id, _, _ in shape]
        self.requests = [rows[request_id] for request_id in self.request_ids]
        self.row_ids: IndexArray = np.array([row.index for row in self.requests], np.intp)
        query_lens: IntArray = np.array([num_tokens for _, num_tokens, _ in shape], np.int32)
        self.query_start_loc: IntArray = np.zeros(len(shape) + 1, np.int32)
        np.cumsum(query_lens, out=self.query_start_loc[1:])
        self.owners: IndexArray = np.repeat(np.arange(len(shape)), query_lens)
        row_numbers: IntArray = np.arange(len(self.owners), dtype=np.int32)
        self.distances: IntArray = row_numbers - self.query_start_loc[self.owners + 1]
        sampled = [place for place, (_, _, samples) in enumerate(shape) if samples]
        self.sampled: IndexArray = np.array(sampled, np.intp)
        self.sampled_ids = [self.request_ids[place] for place in sampled]
        self.sampled_row_ids: IndexArray = self.row_ids[self.sampled]
        self.logit_rows: IntArray = self.query_start_loc[1:][self.sampled] - np.int32(1)
        self.adapter_slots = _adapter_slots(self.requests)
        self.pooled = [place for place, row in enumerate(self.requests) if row.pooling is not None]
        self.reporting = [place for place, row in enumerate(self.requests) if row.reports_prompt_logprobs]
        self.only_logit_rows = not self.pooled and not self.reporting

    def shares(self, places: Sequence[int], scheduled: Sequence[ScheduledRequest]) -> Iterator[RequestShare]:
        """The parts of some requests of the step ``scheduled``."""
        for place in places:
            yield RequestShare(self.requests[place], scheduled[place], int(self.query_start_loc[place]))

    def is_of(self, shape: StepShape, rows: RequestRows) -> bool:
        """Whether it is the layout of a step of this shape; ``rows`` are those that it was made for."""
        return self._version == rows.version and self._shape == shape


def _adapter_slots(requests: Sequence[RequestRow]) -> IntArray | None:
    slots = [row.adapter_slot for row in requests]
    if all(slot is None for slot in slots):
        return None  # nobody pays for adapters that nobody uses
    return np.array([NO_ADAPTER if slot is None else slot for slot in slots], np.int32)
