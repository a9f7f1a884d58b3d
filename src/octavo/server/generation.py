"""What both generating endpoints do once they know what to ask the engine: ask it, and answer."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from fastapi import Request, Response
from pydantic import BaseModel

from octavo.engine.abort_cause import AbortCause
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.prompt import EncodedPrompt, TokensPrompt
from octavo.errors import DrainingError, EngineError, InvalidRequestError, OctavoError
from octavo.lora_request import LoRARequest
from octavo.outputs import RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.server.disconnect import until_disconnect
from octavo.server.limits import check_room
from octavo.server.merge import merge
from octavo.server.observation import REQUEST_ID_HEADER, caller_headers
from octavo.server.protocol.request import GenerationRequest
from octavo.server.sse import EventStream
from octavo.server.state import ServerState, state_of, tenant_of
from octavo.server.unknown_fields import note_unknown_fields
from octavo.structured_outputs import CONSTRAINT_AT_FAULT


class Reply(Protocol):
    """Turns outputs into what an endpoint answers."""

    def whole(self, outputs: Sequence[RequestOutput]) -> BaseModel:
        """The body of an answer in one piece.

        Args:
            outputs: the only one of each prompt, in order.
        """
        ...

    def part(self, prompt_index: int, output: RequestOutput) -> str:
        """The events that tell what is new; may be empty."""
        ...

    def last(self) -> str:
        """The events after all others."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One HTTP request to a generating endpoint.

    Attributes:
        state: of the application.
        request: as it came; its body was read.
        request_id: in the answer, in the log, and what the engine's ids begin with.
        created: when it came [s since 1970].
        headers: of the answer.
    """

    state: ServerState
    request: Request
    request_id: str
    adapter: str | None
    """Name of the LoRA adapter that answers; ``None``: the model as it is."""
    created: int = field(default_factory=lambda: int(time.time()))
    headers: dict[str, str] = field(default_factory=dict)

    def head(self, kind: str) -> dict[str, Any]:
        """What every answer and every chunk begins with."""
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.adapter or self.state.model.name,
            "system_fingerprint": self.state.model.fingerprint,
        }

    async def respond(
        self,
        body: GenerationRequest,
        prompts: Sequence[EncodedPrompt],
        params: SamplingParams,
        reply: Reply,
    ) -> Response:
        """Generate, and answer whole or as a stream.

        Raises:
            OctavoError: the request is at fault, or the engine has no room or has failed.
            ClientDisconnectedError: nobody is left to answer.
        """
        if self.state.config.refuse_overlong:
            for prompt in prompts:
                check_room(len(prompt.token_ids), params.max_tokens, self.state.model.max_model_len)
        outputs = self._outputs(body, prompts, params)
        if body.stream:
            return EventStream(_events(outputs, reply), self.headers, request_id=self.request_id)
        whole = await until_disconnect(self.request.receive, _collect(outputs, len(prompts)))
        # In a thread: log-probabilities of long texts take seconds, in which other streams must go on.
        text = await asyncio.to_thread(lambda: reply.whole(whole).model_dump_json())
        return Response(text, headers=self.headers, media_type="application/json")

    async def _outputs(
        self, body: GenerationRequest, prompts: Sequence[EncodedPrompt], params: SamplingParams
    ) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        lora = None if self.adapter is None else LoRARequest(self.adapter)
        tenant = tenant_of(self.request)
        salt = tenant.cache_salt(body.cache_salt)
        caller = caller_headers(self.request.headers)
        names = [f"{self.request_id}-{index}" for index in range(len(prompts))]
        sources = [
            self.state.engine.generate(
                salted(prompt, salt),
                params,
                name,
                priority=body.priority,
                lora_request=lora,
                tenant=tenant.name,
                trace_headers=caller,
            )
            for name, prompt in zip(names, prompts, strict=True)
        ]
        end_all = partial(end_siblings, self.state.engine, names)
        async with aclosing(merge(sources, on_error=end_all)) as merged:
            async for index, output in merged:
                if (error := _error_of(output)) is not None:
                    await end_all()
                    raise error
                yield index, output


def begin_call(request: Request, body: GenerationRequest, prefix: str) -> Call:
    """Check what concerns the request as a whole.

    Raises:
        ApiError: it names a model that is not served.
        InvalidRequestError: the server is strict and does not know a field.
    """
    state = state_of(request)
    adapter = state.model.adapter(body.model, state.engine.loras)
    request_id = f"{prefix}-{uuid.uuid4().hex}"
    call = Call(state=state, request=request, request_id=request_id, adapter=adapter)
    call.headers[REQUEST_ID_HEADER] = call.request_id
    note_unknown_fields(body.unknown_fields(), call.headers, strict=state.config.strict)
    return call


async def _events(
    outputs: AsyncGenerator[tuple[int, RequestOutput], None], reply: Reply
) -> AsyncGenerator[str, None]:
    async with aclosing(outputs):
        async for index, output in outputs:
            text = reply.part(index, output)
            if text:
                yield text
    yield reply.last()


async def _collect(
    outputs: AsyncGenerator[tuple[int, RequestOutput], None], num_prompts: int
) -> list[RequestOutput]:
    async with aclosing(outputs):
        found = {index: output async for index, output in outputs}
    return [found[index] for index in range(num_prompts)]


def salted(prompt: EncodedPrompt, salt: str | None) -> TokensPrompt:
    """The prompt as the engine takes it, its K/V kept apart by the salt."""
    tokens = TokensPrompt(prompt_token_ids=prompt.token_ids)
    if prompt.text is not None:
        tokens["prompt"] = prompt.text
    if salt is not None:
        tokens["cache_salt"] = salt
    return tokens


async def end_siblings(engine: AsyncEngine, request_ids: Iterable[str]) -> None:
    """End the requests that one HTTP request has become, since one of them failed."""
    for request_id in request_ids:
        await engine.abort(request_id, AbortCause.SIBLING_FAILED)


def _error_of(output: RequestOutput) -> OctavoError | None:
    """An end that no client asked for is an error."""
    for choice in output.outputs:
        if choice.finish_reason == "error" and (choice.error or "").startswith(CONSTRAINT_AT_FAULT):
            return InvalidRequestError(str(choice.error), param="structured_outputs")
        if choice.finish_reason == "error":
            return EngineError(f"the generation failed: {choice.error}")
        if choice.finish_reason == "abort":
            return DrainingError("the server is shutting down and had to end this request")
    return None
