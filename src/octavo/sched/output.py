"""`SchedulerOutput` and `RunnerOutput`: the plain data that crosses between scheduler and runner.

The scheduler decides, the runner computes, and these records are all they know of each other. A
record names request ids, token ids and block ids; it holds no array and no reference to a live
object of either side, so that a runner may live in another thread, process or machine.
"""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kv.block import BlockCopy
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams

# NamedTuples, not frozen dataclasses: they are made once per request and step, and cost a quarter.


class NewRequest(NamedTuple):
    """What a runner must know of a request that it holds no row for (new, or resumed)."""

    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    """Tokens generated before a preemption; empty for a fresh request. A copy that never changes."""
    sampling_params: SamplingParams
    seed: int
    """Seed of the counter-based generator; never ``None`` from here on."""
    choice_index: int
    """Which of the ``n`` continuations this is."""
    pooling: PoolingParams | None = None
    """Set if an embedding of the prompt is wanted, and no token."""
    adapter_slot: int | None = None
    """Number of its LoRA adapter; ``None``: the model as it is."""


class ScheduledRequest(NamedTuple):
    """One request's share of a step.

    The step computes positions ``num_computed_tokens … num_computed_tokens + num_scheduled_tokens - 1``.
    """

    request_id: str
    num_computed_tokens: int
    """Tokens whose K/V is in the cache (or is written earlier in this very step by a sharer)."""
    token_ids: Sequence[int]
    """The tokens to compute, one per scheduled position."""
    block_table_start: int
    """Index of the first block-table entry that changed since the runner last saw the table."""
    new_block_ids: Sequence[int]
    """The block table from ``block_table_start`` on."""
    samples: bool
    """Whether the step reaches the last known token, so that a new one is sampled."""
    new_request: NewRequest | None = None
    """Set when the runner holds no row for this request."""

    @property
    def num_scheduled_tokens(self) -> int:
        """How many tokens the step computes for this request."""
        return len(self.token_ids)


class SchedulerOutput(NamedTuple):
    """Everything a runner needs for one step, in the order in which rows are laid out."""

    step: int
    scheduled: Sequence[ScheduledRequest]
    block_copies: Sequence[BlockCopy] = ()
    """Copies to make in every layer before the step computes."""
    released_request_ids: Sequence[str] = ()
    """Requests finished or preempted since the last step: the runner drops their rows first."""

    @property
    def num_scheduled_tokens(self) -> int:
        """Tokens computed in this step over all requests."""
        return sum(request.num_scheduled_tokens for request in self.scheduled)


class TokenLogprobs(NamedTuple):
    """Log-probabilities at one position, from the model's own distribution.

    That is before penalties, bias and temperature.
    """

    logprob: float
    """Of the token that is there."""
    rank: int
    """1 for the most likely token."""
    top_token_ids: Sequence[int] = ()
    top_logprobs: Sequence[float] = ()
    """The most likely tokens in descending order; ties by ascending token id."""


class RequestResult(NamedTuple):
    """What the runner computed for one request in one step."""

    token_id: int | None = None
    """The sampled token; ``None`` if the step did not reach the last token, or on error."""
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: Sequence[TokenLogprobs] = ()
    """Of the prompt's second to last token, all at once, in the step that reaches the prompt's end.

    So a request that was preempted on the way there and starts over reports nothing twice."""
    embedding: Sequence[float] | None = None
    """Of the whole prompt, in the step that reaches its end, if that is what is wanted."""
    error: str | None = None
    """Why this request alone failed (for example NaN in its logits)."""


class RunnerOutput(NamedTuple):
    """The results of one step by request id."""

    results: dict[str, RequestResult]
