"""``/v1/chat/completions``."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from octavo.server.protocol.body import ListOf, RequestBody
from octavo.server.protocol.logprobs import ChatLogprobs, PromptLogprobs
from octavo.server.protocol.request import MAX_LOGPROBS, GenerationRequest
from octavo.server.protocol.tools import ToolCall, ToolCallChunk, ToolChoice, Tools
from octavo.server.protocol.usage import Usage


class ChatMessageParam(RequestBody):
    """A turn of the conversation. Further fields go to the chat template as they are."""

    role: str
    content: str | ListOf[dict[str, Any]] | None = None
    """Text, or parts of the form ``{"type": "text", "text": …}``."""


class ChatCompletionRequest(GenerationRequest):
    """Answer a conversation."""

    messages: Annotated[ListOf[ChatMessageParam], Field(min_length=1)]
    max_completion_tokens: int | None = None
    """The newer name of max_tokens, which it overrides."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    """Alternatives per token; needs ``logprobs``."""

    tools: Tools | None = None
    """What the model may call."""
    tool_choice: ToolChoice | None = None
    """Whether it may, or must, and which; "auto" if omitted."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may hold several calls; it may if omitted."""

    add_generation_prompt: bool = True
    """Open the assistant's turn."""
    continue_final_message: bool = False
    """Go on with the last message instead; needs ``add_generation_prompt: false``."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Further variables of the chat template."""


class ChatMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    """``None`` if the answer consists of tool calls."""
    refusal: None = None
    reasoning_content: str | None = None
    """What the model thought before it answered, if its template knows such a part."""
    tool_calls: list[ToolCall] | None = None

    @model_serializer(mode="wrap")
    def _without_absent_parts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        absent = {name for name in ("reasoning_content", "tool_calls") if getattr(self, name) is None}
        return {name: value for name, value in handler(self).items() if name not in absent}


class ChatChoice(BaseModel):
    """One of the ``n`` answers."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: int | str | None
    """The stop string or stop token id that ended it."""
    seed: int | None
    """The seed that was used."""


class ChatCompletion(BaseModel):
    """The whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    """Equal requests with equal seeds get equal tokens from servers with equal fingerprints."""
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | None = None


class ChatDelta(BaseModel):
    """What is new in a message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallChunk] | None = None


class ChatChunkChoice(BaseModel):
    """What is new in one of the ``n`` answers."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None = None
    seed: int | None = None


class ChatCompletionChunk(BaseModel):
    """One event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
