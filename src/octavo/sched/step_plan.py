"""`StepPlan`: what has been decided so far about the step being scheduled."""

from collections.abc import Collection

from octavo.config import SchedulerConfig
from octavo.kv.block_table import TableChange
from octavo.sched.output import NewRequest, ScheduledRequest
from octavo.sched.request import Request


class StepPlan:
    """The budget that is left, and the requests chosen, in the order in which rows are laid out.

    Attributes:
        token_budget: tokens that may still be given out.
        chunk_limit: most tokens for one request.
        may_split: whether a request may get a part of what it is missing.
        admits: whether waiting requests may be admitted; not any more once somebody was preempted.
        only: ids of the requests that may be chosen; ``None``: anybody may.
        scheduled: the requests chosen, by id.
        filling: those of them that fill a block in this step, by id.
        reserved_blocks: blocks that they need in later steps for the tokens they already have.
    """

    __slots__ = (
        "_block_size",
        "admits",
        "chunk_limit",
        "filling",
        "may_split",
        "only",
        "reserved_blocks",
        "scheduled",
        "token_budget",
    )

    def __init__(
        self,
        *,
        token_budget: int,
        chunk_limit: int,
        may_split: bool,
        admits: bool,
        only: Collection[str] | None,
        block_size: int,
    ) -> None:
        self.token_budget = token_budget
        self.chunk_limit = chunk_limit
        self.may_split = may_split
        self.admits = admits
        self.only = only
        self.scheduled: dict[str, ScheduledRequest] = {}
        self.filling: dict[str, Request] = {}
        self.reserved_blocks = 0
        self._block_size = block_size

    def may_hold(self, request: Request) -> bool:
        """Whether the request may be chosen at all."""
        return self.only is None or request.request_id in self.only

    def chunk(self, num_missing_tokens: int) -> int:
        """How many of the missing tokens to compute in this step; 0 to wait for one with more room."""
        num_tokens = min(num_missing_tokens, self.chunk_limit, self.token_budget)
        return num_tokens if self.may_split or num_tokens == num_missing_tokens else 0

    def grant(
        self,
        request: Request,
        num_new_tokens: int,
        table_change: TableChange,
        *,
        is_new: bool = False,
    ) -> None:
        """Make ``request``, which holds the blocks for it, a part of the step.

        Args:
            table_change: what the runner has not seen of its block table.
            is_new: whether the runner holds no row for it.
        """
        request_id, start, num_tokens = request.request_id, request.num_computed_tokens, request.num_tokens
        end = start + num_new_tokens
        if end < num_tokens:
            self.reserved_blocks += self.num_later_blocks(request, end)
        if end % self._block_size < num_new_tokens:
            self.filling[request_id] = request
        request.num_computed_tokens = end
        self.token_budget -= num_new_tokens
        self.scheduled[request_id] = ScheduledRequest(
            request_id,
            start,
            request.token_ids[start:end],
            table_change.start,
            table_change.block_ids,
            end == num_tokens and request.pooling is None,
            _new_request(request) if is_new else None,
        )

    def take_back(self, request_id: str) -> None:
        """Return to the budget what a request got, if it got anything: it is preempted after all."""
        self.filling.pop(request_id, None)
        scheduled = self.scheduled.pop(request_id, None)
        if scheduled is not None:
            self.token_budget += scheduled.num_scheduled_tokens

    def num_later_blocks(self, request: Request, num_computed_tokens: int) -> int:
        """Blocks for the tokens that ``request`` has beyond the first ``num_computed_tokens``."""
        return self._num_blocks(request.num_tokens) - self._num_blocks(num_computed_tokens)

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)


def chunk_limit(config: SchedulerConfig, *, num_requests: int) -> int:
    """Most tokens of one request in a step: a long prompt leaves room for others, if there are any."""
    limit = config.long_prefill_token_threshold
    if limit == 0 or num_requests <= 1 or not config.enable_chunked_prefill:
        return config.max_num_batched_tokens
    if config.long_prefill_fair_share:
        limit = max(limit, config.max_num_batched_tokens // num_requests)
    return limit


def _new_request(request: Request) -> NewRequest:
    return NewRequest(
        request.prompt_token_ids,
        request.output_token_ids,
        request.sampling_params,
        request.seed,
        request.choice_index,
        request.pooling,
        request.adapter_slot,
    )
