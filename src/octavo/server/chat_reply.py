"""`ChatReply`: what a model generated, as answers to a chat, whole or in chunks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.server.chunks import ChunkText
from octavo.server.generation import Call
from octavo.server.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.protocol.chat import ChatChoice, ChatCompletion, ChatCompletionRequest, ChatMessage
from octavo.server.protocol.logprobs import ChatLogprobs
from octavo.server.protocol.tools import FunctionCall, ToolCall, ToolCallChunk
from octavo.server.tools.answer_parser import AnswerParser
from octavo.server.tools.deltas import ContentDelta, Delta, ReasoningDelta, ToolCallDelta
from octavo.server.usage import UsageCounter


class ChatReply:
    """The answers of one request, whole or in chunks."""

    def __init__(
        self, call: Call, body: ChatCompletionRequest, new_parser: Callable[[], AnswerParser] | None
    ) -> None:
        """Begin to answer.

        Args:
            call: the HTTP request.
            body: what it asks for.
            new_parser: makes what finds the parts of one answer; ``None`` if all of it is content.
        """
        self._new_parser = new_parser
        self._parsers: dict[int, AnswerParser] = {}
        self._call = call
        self._num_top = (body.top_logprobs or 0) if body.logprobs else None
        self._usage = UsageCounter(tells_receipts=bool(body.cache_receipt))
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
        deltas = self._deltas(choice)
        return ChatChoice(
            index=choice.index,
            message=_message(deltas),
            logprobs=self._logprobs(choice),
            finish_reason=str(self._ended(choice).finish_reason),
            stop_reason=choice.stop_reason,
            seed=choice.seed,
        )

    def _chunk(self, choice: CompletionOutput) -> str:
        logprobs = self._logprobs(choice)
        deltas = [_delta_json(delta) for delta in self._deltas(choice)]
        if not deltas and (logprobs is not None or choice.finished()):
            deltas.append("{}")
        told = ["null" if logprobs is None else logprobs.model_dump_json(), *["null"] * len(deltas)]
        contents = [f'"delta":{delta},"logprobs":{text}' for delta, text in zip(deltas, told, strict=False)]
        if choice.index not in self._begun:
            self._begun.add(choice.index)
            contents.insert(0, '"delta":{"role":"assistant","content":""},"logprobs":null')
        if not contents:
            return ""
        chunks = [self._chunks.chunk(choice.index, content) for content in contents[:-1]]
        return "".join(chunks) + self._chunks.chunk(choice.index, contents[-1], self._ended(choice))

    def _deltas(self, choice: CompletionOutput) -> list[Delta]:
        """What is new in a choice, as far as it is certain what it is."""
        if self._new_parser is None:
            return [ContentDelta(choice.text)] if choice.text else []
        if choice.index not in self._parsers:
            self._parsers[choice.index] = self._new_parser()
        parser = self._parsers[choice.index]
        deltas = parser.push(choice.text)
        return deltas + parser.finish() if choice.finished() else deltas

    def _ended(self, choice: CompletionOutput) -> CompletionOutput:
        """The choice, with the reason that calls of tools have for ending it."""
        parser = self._parsers.get(choice.index)
        if choice.finish_reason == "stop" and parser is not None and parser.is_calling:
            return replace(choice, finish_reason="tool_calls")
        return choice

    def _logprobs(self, choice: CompletionOutput) -> ChatLogprobs | None:
        if self._num_top is None or choice.logprobs is None:
            return None
        return chat_logprobs(
            self._call.state.tokenizer, choice.token_ids, choice.logprobs, num_top=self._num_top
        )


def _message(deltas: Sequence[Delta]) -> ChatMessage:
    """The parts of a whole answer, each in one piece."""
    content = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    calls: list[ToolCall] = []
    for delta in deltas:
        if not isinstance(delta, ToolCallDelta):
            continue
        if delta.call_id is not None:
            calls.append(ToolCall(id=delta.call_id, function=FunctionCall(name=delta.name, arguments="")))
        calls[-1].function.arguments += delta.arguments
    return ChatMessage(
        content=content if content or not calls else None,
        reasoning_content=reasoning or None,
        tool_calls=calls or None,
    )


def _delta_json(delta: Delta) -> str:
    if isinstance(delta, ContentDelta):
        return f'{{"content":{encode_basestring_ascii(delta.text)}}}'
    if isinstance(delta, ReasoningDelta):
        return f'{{"reasoning_content":{encode_basestring_ascii(delta.text)}}}'
    chunk = ToolCallChunk(
        index=delta.index,
        id=delta.call_id,
        type=None if delta.call_id is None else "function",
        function=FunctionCall(name=delta.name, arguments=delta.arguments),
    )
    return f'{{"tool_calls":[{chunk.model_dump_json(exclude_none=True)}]}}'
