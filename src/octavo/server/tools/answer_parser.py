"""`AnswerParser`: the text of one answer, as it is generated, into reasoning, content and tool calls."""

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import Delta, ToolCallDelta
from octavo.server.tools.families import ParseAnswer
from octavo.server.tools.reasoning import parse_reasoning
from octavo.server.tools.text_reader import Steps, TextReader


class AnswerParser:
    """Feed it text as it comes. The deltas, joined, do not depend on how the text was cut into pieces.

    Markup of calls is never content. A call that is malformed is no call, and all of it is content.
    """

    def __init__(
        self,
        parse: ParseAnswer | None,
        calls: CallWriter,
        *,
        max_calls: int | None = None,
        has_reasoning: bool = False,
        reasoning_is_open: bool = False,
    ) -> None:
        """Begin an answer.

        Args:
            parse: reads calls; ``None`` if the answer has none.
            calls: numbers them.
            max_calls: further calls are left out.
            has_reasoning: whether the model may think aloud at first.
            reasoning_is_open: whether the prompt has made it begin to.
        """
        self._reader = TextReader()
        self._calls = calls
        self._max_calls = max_calls
        self._steps = self._parse(parse, has_reasoning, reasoning_is_open)

    @property
    def is_calling(self) -> bool:
        """Whether a tool call has begun."""
        return self._calls.num_calls > 0

    def push(self, text: str) -> list[Delta]:
        """What is certain after more text."""
        self._reader.append(text)
        return self._advance()

    def finish(self) -> list[Delta]:
        """What is left when the text has ended."""
        self._reader.close()
        return self._advance()

    def _advance(self) -> list[Delta]:
        deltas = []
        for delta in self._steps:
            if delta is None:
                break
            if not self._is_left_out(delta):
                deltas.append(delta)
        return deltas

    def _is_left_out(self, delta: Delta) -> bool:
        if self._max_calls is None or not isinstance(delta, ToolCallDelta):
            return False
        return delta.index >= self._max_calls

    def _parse(self, parse: ParseAnswer | None, has_reasoning: bool, reasoning_is_open: bool) -> Steps[None]:
        if has_reasoning:
            yield from parse_reasoning(self._reader, is_open=reasoning_is_open)
        if parse is not None:
            yield from parse(self._reader, self._calls)
        yield from self._reader.copy_until()
