"""`Engine`: requests in, outputs out, one step at a time. The synchronous front that all others drive."""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from octavo.engine.abort_cause import AbortCause
from octavo.engine.adapters import AdapterRegistry, LoadedAdapter
from octavo.engine.choice import choice_ids
from octavo.engine.core import EngineCore
from octavo.engine.grammar import GrammarCompiler
from octavo.engine.output_processor import OutputProcessor, ProcessedUpdates
from octavo.engine.queue_place import ANY_PLACE, QueuePlace
from octavo.engine.request_check import check_place, check_request, split_params
from octavo.engine.telemetry import EngineTelemetry
from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError, QueueTimeoutError, UnsupportedFeatureError
from octavo.kv.hashing import BlockHasher, ExtraKey, ExtraKeyKind
from octavo.lora_request import LoRARequest
from octavo.outputs import RequestOutput
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams
from octavo.sched.pause import PauseMode
from octavo.sched.request import FinishReason, Request
from octavo.structured_outputs import StructuredOutputsParams

SEED_BITS = 64
POLL_S = 0.005
"""How often to look whether what requests are held back for is ready, if nothing else is to do."""


def draw_seed() -> int:
    """A seed nobody can guess, for a request that names none."""
    return random.SystemRandom().getrandbits(SEED_BITS)


def _extra_keys(cache_salt: str | None, adapter: LoadedAdapter | None) -> list[ExtraKey]:
    """What K/V depends on beside the tokens, and what keeps it apart."""
    salt = [] if cache_salt is None else [ExtraKey(ExtraKeyKind.CACHE_SALT, cache_salt)]
    return salt if adapter is None else [*salt, *adapter.extra_keys]


class Engine:
    """Joins `EngineCore` and `OutputProcessor`. Not thread-safe: one thread owns it.

    Args:
        core: schedules and computes.
        tokenizer: of the model.
        block_hasher: hashes full blocks for prefix caching; ``None`` turns it off.
        grammars: readies constraints on texts; ``None`` if none can be given.
        adapters: LoRA adapters that requests can ask for; none, if omitted.
        clock: orders arrivals [s].
        seeds: draws the seed of a request that names none.
    """

    def __init__(
        self,
        core: EngineCore,
        tokenizer: Tokenizer,
        *,
        block_hasher: BlockHasher | None = None,
        grammars: GrammarCompiler | None = None,
        adapters: AdapterRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
        seeds: Callable[[], int] = draw_seed,
    ) -> None:
        self.core = core
        self.tokenizer = tokenizer
        self.adapters = adapters or AdapterRegistry()
        self._block_hasher = block_hasher
        self._grammars = grammars
        self._clock = clock
        self._seeds = seeds
        self._outputs = OutputProcessor(tokenizer)

    @property
    def telemetry(self) -> EngineTelemetry:
        """What is counted and timed; other threads may read its published records."""
        return self.core.telemetry

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether any request is under way, held back by a pause or not."""
        return self.core.has_unfinished_requests

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return self.core.scheduler.has_work or self.core.scheduler.next_deadline <= self._clock()

    @property
    def max_num_tokens(self) -> int:
        """Tokens at which a sequence ends, prompt and output together; it never changes."""
        return self.core.scheduler.limit.max_num_tokens

    @property
    def patience_s(self) -> float | None:
        """How soon `has_work` may change by itself [s]; ``None`` if only a call changes it."""
        if self.core.scheduler.num_held_back:
            return POLL_S
        deadline = self.core.scheduler.next_deadline
        return None if deadline == math.inf else max(deadline - self._clock(), 0.0)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated since the start, over all requests."""
        return self.telemetry.num_generation_tokens

    @property
    def request_ids(self) -> list[str]:
        """The requests under way, oldest first."""
        return self._outputs.request_ids

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | PoolingParams,
        *,
        prompt: str | None = None,
        place: QueuePlace = ANY_PLACE,
        cache_salt: str | None = None,
        adapter: str | None = None,
        trace_headers: Mapping[str, str] | None = None,
    ) -> None:
        """Let a request wait for its turn.

        Args:
            request_id: names it in outputs and for `abort`; unique among the requests under way.
            prompt_token_ids: at least one id, each in ``range(vocab_size)``.
            params: how tokens are chosen and when it ends, or how an embedding of the prompt is made.
            prompt: the text that the ids come from, returned with the output.
            place: where it stands among others that wait.
            cache_salt: only requests with the same salt share cached blocks.
            adapter: name of a loaded LoRA adapter; ``None`` for the model as it is.
            trace_headers: handed on, unread, to whoever records requests that have ended.

        Raises:
            InvalidRequestError: a value is out of range, or the id is in use.
            AdapterError: there is no such adapter.
            ContextLengthError: the prompt can never fit, with the numbers.
            QueueFullError: too many requests are waiting.
            EngineDeadError: the engine has stopped.
        """
        check_place(request_id, place)
        sampling, _ = split_params(params)
        self._check_id_is_free(request_id)
        check_request(
            prompt_token_ids,
            sampling,
            cache_salt=cache_salt,
            vocab_size=self.tokenizer.vocab_size,
            limit=self.core.scheduler.limit,
        )
        loaded = None if adapter is None else self.adapters.get(adapter)
        names = choice_ids(request_id, sampling.n)
        requests = self._make_requests(
            names,
            prompt_token_ids,
            params,
            place=place,
            cache_salt=cache_salt,
            adapter=loaded,
        )
        progress = self._outputs.prepare(request_id, requests, prompt=prompt)
        # Nothing can fail after the scheduler has taken them.
        self.core.add(*requests)
        self._outputs.add(progress)
        self.adapters.hold(request_id, loaded)
        self.telemetry.request_added(request_id, requests, trace_headers)

    def _make_requests(
        self,
        names: Sequence[str],
        prompt_token_ids: Sequence[int],
        params: SamplingParams | PoolingParams,
        *,
        place: QueuePlace,
        cache_salt: str | None,
        adapter: LoadedAdapter | None,
    ) -> list[Request]:
        """One for each of the ``n`` continuations."""
        sampling, pooling = split_params(params)
        first = Request(
            names[0],
            prompt_token_ids,
            sampling,
            seed=self._seeds() if sampling.seed is None else sampling.seed,
            eos_token_ids=self.tokenizer.eos_token_ids,
            arrival_time=self._clock(),
            priority=place.priority,
            tenant=place.tenant,
            block_hasher=self._block_hasher,
            pooling=pooling,
            prerequisite=self._compile(sampling.structured_outputs),
            extra_keys=_extra_keys(cache_salt, adapter),
            adapter_slot=None if adapter is None else adapter.slot,
        )
        siblings = (first.sibling(name, choice_index=i) for i, name in enumerate(names[1:], start=1))
        return [first, *siblings]

    def _compile(self, constraint: StructuredOutputsParams | None) -> "Future[Any] | None":
        if constraint is None:
            return None
        if self._grammars is None:
            raise UnsupportedFeatureError(
                "this engine compiles no grammars for structured_outputs; leave it out"
            )
        return self._grammars.compile(constraint)

    def _check_id_is_free(self, request_id: str) -> None:
        if request_id in self._outputs:
            raise InvalidRequestError(
                f"request id {request_id!r} is in use; choose another", param="request_id"
            )

    def step(self) -> list[RequestOutput]:
        """Run one step.

        Returns:
            An output for each request that changed, or was refused after all. By default it holds the whole
            text so far, which later steps only add to; `SamplingParams.output_kind` asks for less.

        Raises:
            EngineDeadError: the engine has stopped for good.
        """
        refused = self._end_refused()
        processed: ProcessedUpdates = self._outputs.process(self.core.step())
        for stop in processed.stops:
            self.core.finish(stop.request_id, FinishReason.STOP, stop_reason=stop.stop_string)
        outputs = refused + processed.outputs
        self.adapters.release([output.request_id for output in outputs if output.finished])
        self.telemetry.publish_if_due()
        return outputs

    def _end_refused(self) -> list[RequestOutput]:
        """End the requests that cannot be admitted any more."""
        outputs = []
        for choice_id, error in self.core.scheduler.take_refused(self._clock()):
            ended = self._outputs.refuse(choice_id, error)
            if ended is None:
                continue
            output, choice_ids = ended
            outputs.append(output)
            is_late = isinstance(error, QueueTimeoutError)
            for ended_id in choice_ids:
                if is_late:
                    self.core.finish(ended_id, FinishReason.ABORT, cause=AbortCause.TIMEOUT)
                else:
                    self.core.finish(ended_id, FinishReason.ERROR)
        return outputs

    def abort(self, request_id: str, cause: AbortCause = AbortCause.REQUESTED) -> RequestOutput | None:
        """End a request and give its blocks back.

        Args:
            cause: why, for logs and counters.

        Returns:
            Its last output, with finish reason "abort"; ``None`` if it is unknown or has ended.
        """
        aborted = self._outputs.abort(request_id)
        if aborted is None:
            return None
        self.adapters.release([request_id])
        output, choice_ids = aborted
        for choice_id in choice_ids:
            self.core.finish(choice_id, FinishReason.ABORT, cause=cause)
        return output

    def abort_all(self, cause: AbortCause = AbortCause.REQUESTED) -> list[RequestOutput]:
        """End every request; returns their last outputs."""
        outputs = [self.abort(request_id, cause) for request_id in self.request_ids]
        self.telemetry.publish()
        return [output for output in outputs if output is not None]

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Load an adapter for requests to ask for; returns whether it was not there before.

        Raises:
            AdapterError: its files do not fit the model, or its name is taken.
            CapacityError: no more adapters may be loaded.
        """
        if self.adapters.holds(lora_request):
            return False
        return self.adapters.add(lora_request, self.adapters.read(lora_request.lora_path))

    def pause(self, mode: PauseMode = PauseMode.NEW) -> None:
        """Admit nobody, or compute nothing at all, until `resume`."""
        self.core.scheduler.pause_mode = mode

    def resume(self) -> None:
        """End a pause."""
        self.core.scheduler.pause_mode = None

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes; returns ``False``, with nothing changed, while blocks are in use.

        Args:
            reset_running_requests: take their blocks from running requests first, which are computed anew.
        """
        return self.core.scheduler.reset_prefix_cache(reset_running=reset_running_requests)

    def close(self) -> None:
        """End every request and give back memory and threads; calling it again does nothing."""
        self.abort_all(AbortCause.SHUTDOWN)
        self.release()

    def release(self) -> None:
        """Give back memory and threads of an engine that may have died; calling it again does nothing."""
        if self._grammars is not None:
            self._grammars.close()
        self.core.close()
