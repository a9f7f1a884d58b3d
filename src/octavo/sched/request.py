"""`Request`: one sequence of tokens and everything that is counted about it.

Token accounting lives here and nowhere else::

    token_ids   [ prompt ................. | output ........ ]
                  num_prompt_tokens          num_output_tokens
    K/V         [ num_computed_tokens ........... | to compute ]
                                                    └─ a step computes some of these

There is no prefill and no decode phase: a step closes a part of the gap between
``num_computed_tokens`` and ``num_tokens``, and when it closes all of it, a token is sampled.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any

from octavo.kv.hashing import BlockHash, BlockHasher, ExtraKey, ExtraKeyKind, check_extra_keys, request_root
from octavo.kv.receipt import CacheReceipt
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams


class RequestStatus(StrEnum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Waiting again: its blocks were given up and are computed anew."""
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended, in the words of the OpenAI API."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


_NO_TOKENS: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Request:
    """One continuation of one prompt, as the scheduler and the cache see it.

    Its ``repr`` shows no content: what a client sent does not belong in a log.

    Raises:
        InvalidRequestError: the extra keys are too long, see `check_extra_keys`.
    """

    request_id: str
    prompt_token_ids: Sequence[int] = field(repr=False)
    sampling_params: SamplingParams = field(repr=False)
    _: KW_ONLY
    seed: int
    """Seed of the counter-based generator; drawn before this point if the client gave none."""
    eos_token_ids: frozenset[int] = frozenset()
    arrival_time: float = 0.0
    """Orders requests of equal priority [s]; any clock, as long as all requests use the same."""
    priority: int = 0
    """Lower runs first under the priority policy."""
    tenant: str = ""
    """Whose it is: tenants that wait are served in turn."""
    pooling: PoolingParams | None = None
    """Set if it ends with an embedding of its prompt, and generates nothing."""
    choice_index: int = 0
    """Which of the ``n`` continuations of its prompt this is."""
    first_sibling: "Request | None" = field(default=None, repr=False)
    """The first of the ``n`` siblings, for all siblings but the first."""
    block_hasher: BlockHasher | None = field(default=None, repr=False)
    """Hashes full blocks for prefix caching; ``None`` if nothing is to be found or shared."""
    prerequisite: "Future[Any] | None" = field(default=None, repr=False)
    """What must be made before it may run, for example its grammar; an error ends the request."""
    extra_keys: Sequence[ExtraKey] = field(default=(), repr=False)
    """What the K/V depends on beside the tokens, and what keeps it apart: adapter, cache salt."""

    adapter_slot: int | None = None
    """Number of its LoRA adapter, whose keys are among ``extra_keys``; ``None``: the model as it is."""

    token_ids: list[int] = field(init=False, repr=False)
    """Prompt and output. Only `append_token` changes it."""
    num_prompt_tokens: int = field(init=False)
    num_tokens: int = field(init=False)
    """Prompt and output tokens so far."""
    num_computed_tokens: int = field(init=False, default=0)
    """Tokens whose K/V is in the cache, or will be when the step under way has run."""
    num_cached_tokens: int = field(init=False, default=0)
    """Tokens that the first admission found in the cache instead of computing them."""
    cache_receipt: CacheReceipt | None = field(init=False, default=None)
    """What the first admission got from the cache."""
    num_preemptions: int = field(init=False, default=0)
    block_hashes: list[BlockHash] = field(init=False, repr=False, default_factory=list)
    """One per full block of known tokens; only ever appended to."""
    hash_root: BlockHash = field(init=False, repr=False, default=b"")
    """Where the chain of block hashes starts; empty if nothing is hashed."""
    skip_prefix_lookup: bool = field(init=False)
    """Whether every prompt position must be computed: its log-probability or hidden state is asked for."""
    end_token_ids: frozenset[int] = field(init=False, repr=False)
    """Tokens that end the request once ``min_tokens`` are there."""
    max_num_tokens: int = field(init=False)
    """``num_tokens`` at which ``max_tokens`` ends the request."""
    arrival_index: int = field(init=False, default=0)
    """Counts up over the requests of a scheduler; decides between equal arrival times."""
    status: RequestStatus = field(init=False, default=RequestStatus.WAITING)
    finish_reason: FinishReason | None = field(init=False, default=None)
    stop_reason: int | str | None = field(init=False, default=None)
    """The stop token id or stop string that ended it; ``None`` for the end-of-sequence token."""

    def __post_init__(self) -> None:
        params = self.sampling_params
        self.prompt_token_ids = tuple(self.prompt_token_ids)
        self.token_ids = list(self.prompt_token_ids)
        self.num_prompt_tokens = self.num_tokens = len(self.token_ids)
        self.max_num_tokens = (
            sys.maxsize if params.max_tokens is None else self.num_prompt_tokens + params.max_tokens
        )
        self.skip_prefix_lookup = params.prompt_logprobs is not None or self.pooling is not None
        eos_token_ids = _NO_TOKENS if params.ignore_eos else self.eos_token_ids
        # One set for all requests, if it can be: it is looked at with every token.
        self.end_token_ids = (
            eos_token_ids.union(params.stop_token_ids) if params.stop_token_ids else eos_token_ids
        )
        check_extra_keys(self.extra_keys)
        if self.block_hasher is not None:
            self.hash_root = request_root(self.block_hasher.root, self.extra_keys)
            self.block_hasher.extend(self.block_hashes, self.token_ids, self.hash_root)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """The generated tokens, as a copy."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_salted(self) -> bool:
        """Whether a cache salt keeps its blocks apart."""
        return any(key.kind is ExtraKeyKind.CACHE_SALT for key in self.extra_keys)

    @property
    def is_finished(self) -> bool:
        """Whether no more tokens will come."""
        return self.status is RequestStatus.FINISHED

    @property
    def precedence(self) -> tuple[int, float, int]:
        """Key of the priority order: the lowest goes first. No two requests have the same."""
        return (self.priority, self.arrival_time, self.arrival_index)

    def append_token(self, token_id: int) -> None:
        """Add a generated token; a block that it fills gets its hash."""
        self.token_ids.append(token_id)
        self.num_tokens += 1
        hasher = self.block_hasher
        if hasher is not None and self.num_tokens % hasher.block_size == 0:
            hasher.extend(self.block_hashes, self.token_ids, self.hash_root)

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Record the end; whoever calls this sees to the blocks."""
        self.status = RequestStatus.FINISHED
        self.finish_reason = reason
        self.stop_reason = stop_reason

    def sibling(self, request_id: str, *, choice_index: int) -> "Request":
        """Another continuation of the same prompt, which shares this request's K/V of it.

        Call it on the first of the siblings, before any of them is added to a scheduler.
        """
        return Request(
            request_id,
            self.prompt_token_ids,
            self.sampling_params,
            seed=self.seed,
            eos_token_ids=self.eos_token_ids,
            arrival_time=self.arrival_time,
            priority=self.priority,
            tenant=self.tenant,
            choice_index=choice_index,
            first_sibling=self,
            block_hasher=self.block_hasher,
            prerequisite=self.prerequisite,
            extra_keys=self.extra_keys,
            adapter_slot=self.adapter_slot,
        )
