"""``/v1/chat/completions``: conversations, written out by the model's chat template."""

import asyncio
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from fastapi import APIRouter, Request, Response

from octavo.engine.prompt import EncodedPrompt, encode_chat, template_variables
from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.server.chunks import ChunkText
from octavo.server.generation import Call, begin_call
from octavo.server.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.protocol.chat import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionRequest,
    ChatMessage,
    ChatMessageParam,
)
from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.logprobs import ChatLogprobs
from octavo.server.sampling import sampling_params
from octavo.server.usage import UsageCounter

router = APIRouter(tags=["generation"])


@router.post(
    "/v1/chat/completions",
    response_model=None,
    responses={
        200: {"model": ChatCompletion, "description": "The answer; with `stream`, events of chunks"},
        "4XX": {"model": ErrorResponse},
        "5XX": {"model": ErrorResponse},
    },
)
async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
    """Answer a conversation."""
    call = begin_call(request, body, "chatcmpl")
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidRequestError("prompt_logprobs is not there with stream", param="prompt_logprobs")
    params = sampling_params(
        body,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        prompt_logprobs=body.prompt_logprobs,
    )
    prompt = await encode_messages(
        body.messages,
        call.state.tokenizer,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        chat_template_kwargs=body.chat_template_kwargs,
    )
    return await call.respond(body, [prompt], params, ChatReply(call, body))


async def encode_messages(
    messages: Sequence[ChatMessageParam],
    tokenizer: Tokenizer,
    *,
    add_generation_prompt: bool,
    continue_final_message: bool,
    chat_template_kwargs: Mapping[str, object] | None,
) -> EncodedPrompt:
    """Render and tokenize a conversation, in a thread: neither may hold up other requests.

    Raises:
        RequestError: a message is at fault.
    """
    variables: dict[str, Any] = template_variables(chat_template_kwargs, None)
    return await asyncio.to_thread(
        encode_chat,
        [message.model_dump(exclude_unset=True) for message in messages],
        tokenizer,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        **variables,
    )


class ChatReply:
    """The answers of one request, whole or in chunks."""

    def __init__(self, call: Call, body: ChatCompletionRequest) -> None:
        self._call = call
        self._num_top = (body.top_logprobs or 0) if body.logprobs else None
        self._usage = UsageCounter()
        self._chunks = ChunkText(call.head("chat.completion.chunk"), body.stream_options, usage=self._usage)
        self._begun: set[int] = set()

    def whole(self, outputs: Sequence[RequestOutput]) -> ChatCompletion:
        """The body of an answer in one piece."""
        [output] = outputs
        self._usage.add(0, output)
        return ChatCompletion(
            **self._call.head("chat.completion"),
            choices=[self._choice(choice) for choice in output.outputs],
            usage=self._usage.usage(),
            prompt_logprobs=None
            if output.prompt_logprobs is None
            else prompt_logprobs(output.prompt_logprobs),
        )

    def part(self, prompt_index: int, output: RequestOutput) -> str:
        """The chunks that tell what is new."""
        self._usage.add(prompt_index, output)
        return "".join([self._chunk(choice) for choice in output.outputs])

    def last(self) -> str:
        """The usage, if it was asked for."""
        return self._chunks.last()

    def _choice(self, choice: CompletionOutput) -> ChatChoice:
        return ChatChoice(
            index=choice.index,
            message=ChatMessage(content=choice.text),
            logprobs=self._logprobs(choice),
            finish_reason=str(choice.finish_reason),
            stop_reason=choice.stop_reason,
            seed=choice.seed,
        )

    def _chunk(self, choice: CompletionOutput) -> str:
        text = ""
        if choice.index not in self._begun:
            self._begun.add(choice.index)
            text = self._chunks.chunk(
                choice.index, '"delta":{"role":"assistant","content":""},"logprobs":null'
            )
        logprobs = self._logprobs(choice)
        if choice.text or logprobs is not None or choice.finish_reason is not None:
            delta = f'{{"content":{encode_basestring_ascii(choice.text)}}}' if choice.text else "{}"
            told = "null" if logprobs is None else logprobs.model_dump_json()
            text += self._chunks.chunk(choice.index, f'"delta":{delta},"logprobs":{told}', choice)
        return text

    def _logprobs(self, choice: CompletionOutput) -> ChatLogprobs | None:
        if self._num_top is None or choice.logprobs is None:
            return None
        return chat_logprobs(
            self._call.state.tokenizer, choice.token_ids, choice.logprobs, num_top=self._num_top
        )
