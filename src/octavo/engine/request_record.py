"""`RequestRecord`: when what happened to a request; `FinishedRequest`: told when it has ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.engine.abort_cause import AbortCause
from octavo.kv.hashing import BlockHash
from octavo.sampling_params import SamplingParams
from octavo.sched.request import FinishReason, Request


class FinishedRequest(NamedTuple):
    """A caller's request that has ended, for logs, traces and replays. Holds no text and no token."""

    request_id: str
    params: SamplingParams
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    """Over all continuations."""
    num_preemptions: int
    """Over all continuations."""
    finish_reasons: Sequence[FinishReason]
    """One per continuation, in the order in which they ended."""
    abort_cause: AbortCause | None
    arrived_at: float
    """This and the following are on the engine's clock [s]; ``None`` for what did not happen."""
    scheduled_at: float | None
    first_token_at: float | None
    last_token_at: float | None
    ended_at: float
    block_hashes: Sequence[BlockHash]
    """Of the prompt's full blocks; empty if nothing is hashed."""
    trace_headers: Mapping[str, str] | None


@dataclass(slots=True, eq=False)
class RequestRecord:
    """A caller's request under way."""

    request_id: str
    requests: Sequence[Request]
    """The scheduler's, one per continuation."""
    arrived_at: float
    trace_headers: Mapping[str, str] | None = None
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    finish_reasons: list[FinishReason] = field(default_factory=list)
    abort_cause: AbortCause | None = None

    @property
    def is_finished(self) -> bool:
        """Whether every continuation has ended."""
        return len(self.finish_reasons) == len(self.requests)

    def finished(self, now: float, block_size: int) -> FinishedRequest:
        """What is told now that it has ended."""
        first = self.requests[0]
        num_full_blocks = first.num_prompt_tokens // block_size
        return FinishedRequest(
            self.request_id,
            first.sampling_params,
            first.num_prompt_tokens,
            first.num_cached_tokens,
            sum(request.num_output_tokens for request in self.requests),
            sum(request.num_preemptions for request in self.requests),
            self.finish_reasons,
            self.abort_cause,
            self.arrived_at,
            self.scheduled_at,
            self.first_token_at,
            self.last_token_at,
            now,
            first.block_hashes[:num_full_blocks],
            self.trace_headers,
        )


@dataclass(slots=True, eq=False)
class ChoiceTimes:
    """When what happened to one continuation."""

    request: Request
    record: RequestRecord
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
