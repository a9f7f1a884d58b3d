"""`AsyncEngine`: an `Engine` in a thread of its own, behind coroutines."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Self

from octavo.engine.abort_cause import AbortCause
from octavo.engine.adapters import LoadedAdapter
from octavo.engine.engine import Engine
from octavo.engine.engine_thread import EngineThread
from octavo.engine.lifecycle import EngineState
from octavo.engine.output_stream import OutputStream
from octavo.engine.prompt import EncodedPrompt, Prompt, encode_prompt
from octavo.engine.queue_place import QueuePlace
from octavo.engine.request_check import check_pooling_params, checked_params
from octavo.engine.request_record import FinishedRequest
from octavo.engine.snapshot import EngineSnapshot
from octavo.engine.tokenizer import Tokenizer
from octavo.engine.watchdog import DEFAULT_STALL_S, Stall, StallReason, Watchdog
from octavo.lora_request import LoRARequest
from octavo.outputs import EmbeddingRequestOutput, RequestOutput
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sched.pause import PauseMode

DEFAULT_DRAIN_S = 30.0
EXIT_GRACE_S = 10.0
"""How long a step may take to notice that the deadline has passed."""


class AsyncEngine:
    """Serves many coroutines from one engine.

        async with AsyncEngine(lambda: build_engine(config)) as engine:
            async for output in engine.generate("Once upon a time", SamplingParams(max_tokens=64)):
                print(output.outputs[0].text)

    Nobody waits for ever: if the engine dies, every stream ends with `EngineDeadError`.

    Args:
        build: makes the engine; called once, in the engine's thread, so that loading blocks no event loop.
        stall_s: work without progress for longer than this is reported, see `stall`.
        on_finished: is told of every request that has ended, in the engine's thread; must return at once.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        stall_s: float = DEFAULT_STALL_S,
        on_finished: Callable[[FinishedRequest], None] | None = None,
    ) -> None:
        def build_observed() -> Engine:
            engine = build()
            engine.telemetry.on_finished = on_finished
            return engine

        self._thread = EngineThread(build_observed)
        self._watchdog = Watchdog(lambda: self._thread.telemetry, stall_s)

    async def __aenter__(self) -> Self:
        self.start()
        await self.wait_until_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown(drain_s=0.0)

    @property
    def state(self) -> EngineState:
        """Where the engine is in its life."""
        return self._thread.state

    @property
    def num_unfinished_requests(self) -> int:
        """Requests that somebody still reads the output of."""
        return self._thread.num_open_streams

    @property
    def snapshot(self) -> EngineSnapshot | None:
        """Everything that is counted, as of the last step; ``None`` before the model is loaded."""
        telemetry = self._thread.telemetry
        return None if telemetry is None else telemetry.snapshot

    @property
    def stall(self) -> Stall | None:
        """Why work makes no progress, while it makes none."""
        return None if self.state.is_final else self._watchdog.stall

    @property
    def num_stalls(self) -> Mapping[StallReason, int]:
        """Stalls since the start, by reason."""
        return self._watchdog.num_stalls

    @property
    def cause_of_death(self) -> BaseException | None:
        """What killed the engine, if it is dead."""
        return self._thread.cause_of_death

    def start(self) -> None:
        """Begin to load the model; returns at once. Calling it again does nothing.

        Raises:
            EngineDeadError: the engine has stopped for good; make another one.
        """
        self._thread.start()
        self._watchdog.start()

    async def wait_until_ready(self) -> None:
        """Wait until the model is loaded.

        Raises:
            EngineError: `start` was not called.
            EngineDeadError: it could not be loaded; the cause says why.
        """
        await self._thread.wait_until_ready()

    async def wait_until_stopped(self) -> None:
        """Wait until the engine has stopped or died, whatever the reason; `state` says which."""
        await self._thread.wait_until_stopped()

    @property
    def max_num_tokens(self) -> int:
        """Tokens at which a sequence ends, prompt and output together.

        Raises:
            EngineDeadError: no engine is built, or not yet.
        """
        return self._thread.engine.max_num_tokens

    async def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        await self.wait_until_ready()
        return self._thread.engine.tokenizer

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        *,
        priority: int = 0,
        lora_request: LoRARequest | None = None,
        tenant: str = "",
        trace_headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Generate; every output holds the whole text so far, the last one is ``finished``.

        With ``output_kind=RequestOutputKind.DELTA`` an output holds only what is new since the one before,
        with ``FINAL_ONLY`` there is one output. Leaving the loop early, or cancelling the task, aborts the
        request within one step. Without a ``request_id`` one is made up that nobody can guess. The adapter of
        a ``lora_request`` is loaded first, if it is not there.

        Args:
            prompt: text or token ids.
            sampling_params: how to continue it.
            request_id: names it for `abort`.
            priority: lower runs first under the priority policy.
            lora_request: the adapter to use; ``None`` for the model as it is.
            tenant: whose it is; tenants that wait are served in turn.
            trace_headers: handed on, unread, to whoever records requests that have ended.

        Raises:
            RequestError: the request is at fault.
            CapacityError: the queue is full, it waited too long, or the engine is shutting down.
            EngineError: `start` was not called.
            EngineDeadError: the engine has stopped for good.
        """
        checked_params(sampling_params)
        if lora_request is not None:
            await self.add_lora(lora_request)
        stream = await self._open(
            prompt,
            sampling_params,
            request_id,
            priority=priority,
            tenant=tenant,
            adapter=None if lora_request is None else lora_request.lora_name,
            trace_headers=trace_headers,
        )
        try:
            while True:
                output = await stream.next()
                yield output
                if output.finished:
                    return
        finally:
            self._thread.close_stream(stream)

    async def embed(
        self,
        prompt: Prompt,
        pooling_params: PoolingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        tenant: str = "",
        trace_headers: Mapping[str, str] | None = None,
    ) -> EmbeddingRequestOutput:
        """The embedding of a prompt: the mean of the last hidden states of its tokens.

        Raises:
            EngineError: it could not be computed, or was aborted; for the others see `generate`.
        """
        params = PoolingParams() if pooling_params is None else pooling_params
        check_pooling_params(params)
        stream = await self._open(
            prompt, params, request_id, priority=priority, tenant=tenant, trace_headers=trace_headers
        )
        try:
            return EmbeddingRequestOutput.of(await stream.next())
        finally:
            self._thread.close_stream(stream)

    async def _open(
        self,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        request_id: str | None,
        *,
        priority: int,
        adapter: str | None = None,
        tenant: str,
        trace_headers: Mapping[str, str] | None,
    ) -> OutputStream:
        """Send a request on its way; the stream must be closed in the end."""
        token_ids, text, cache_salt = await self._encode(prompt)
        name = f"request-{uuid.uuid4().hex}" if request_id is None else request_id
        output_kind = (
            params.output_kind if isinstance(params, SamplingParams) else RequestOutputKind.FINAL_ONLY
        )
        stream = OutputStream(name, output_kind)
        self._thread.open_stream(
            stream,
            lambda engine: engine.add_request(
                name,
                token_ids,
                params,
                prompt=text,
                place=QueuePlace(priority, tenant),
                cache_salt=cache_salt,
                adapter=adapter,
                trace_headers=trace_headers,
            ),
        )
        return stream

    async def _encode(self, prompt: Prompt) -> EncodedPrompt:
        tokenizer = await self.get_tokenizer()
        if isinstance(prompt, dict) and prompt.get("prompt_token_ids") is not None:
            return encode_prompt(prompt, tokenizer)
        # Long texts take a while, and tokenizing leaves the interpreter to others.
        return await asyncio.to_thread(encode_prompt, prompt, tokenizer)

    async def abort(self, request_id: str, cause: AbortCause = AbortCause.REQUESTED) -> None:
        """End a request; its stream ends with finish reason "abort". An unknown id is ignored.

        Args:
            cause: why, for logs and counters.
        """
        self._thread.abort(request_id, cause)

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        """Load an adapter while requests go on; returns whether it was not there before.

        Raises:
            AdapterError: its files do not fit the model, or its name is taken.
            CapacityError: no more adapters may be loaded.
            EngineDeadError: the engine has stopped.
        """
        await self.wait_until_ready()
        adapters = self._thread.engine.adapters
        if adapters.holds(lora_request):
            return False
        weights = await asyncio.to_thread(adapters.read, lora_request.lora_path)
        return await self._thread.call(lambda engine: engine.adapters.add(lora_request, weights))

    async def remove_lora(self, lora_name: str) -> None:
        """Unload an adapter.

        Raises:
            AdapterError: there is none of this name.
            CapacityError: requests under way use it.
            EngineDeadError: the engine has stopped.
        """
        await self._thread.call(lambda engine: engine.adapters.remove(lora_name))

    @property
    def loras(self) -> Mapping[str, LoadedAdapter]:
        """The loaded adapters by name, oldest first; none before the engine is built."""
        return {} if self._thread.telemetry is None else self._thread.engine.adapters.loaded

    async def pause(self, mode: PauseMode = PauseMode.NEW) -> None:
        """Admit nobody, or compute nothing at all, until `resume`; returns when no step is under way.

        Requests may still be added and aborted. A shutdown ends the pause.
        """
        await self._thread.call(lambda engine: engine.pause(mode))

    async def resume(self) -> None:
        """End a pause."""
        await self._thread.call(lambda engine: engine.resume())

    async def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes; returns ``False``, with nothing changed, while blocks are in use.

        Args:
            reset_running_requests: take their blocks from running requests first, which are computed anew.
        """
        return await self._thread.call(
            lambda engine: engine.reset_prefix_cache(reset_running_requests=reset_running_requests)
        )

    async def shutdown(self, *, drain_s: float = DEFAULT_DRAIN_S) -> None:
        """Refuse new requests, finish those under way, and stop.

        Args:
            drain_s: after this many seconds what is still running is aborted.

        Raises:
            EngineDeadError: the engine did not stop; its streams were ended all the same.
        """
        deadline = time.monotonic() + drain_s
        self._thread.drain(deadline)
        stopped = await asyncio.to_thread(self._thread.join, drain_s + EXIT_GRACE_S)
        self._watchdog.stop()
        if not stopped:
            raise self._thread.give_up(f"the engine did not stop within {drain_s + EXIT_GRACE_S:.0f} s")
