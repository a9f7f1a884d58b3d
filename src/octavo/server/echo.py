"""`ChoiceText`: text and log-probabilities of one completion, the prompt before them if asked."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.outputs import CompletionOutput, Logprobs
from octavo.server.logprobs import CompletionLogprobsBuilder
from octavo.server.protocol.logprobs import CompletionLogprobs


class EchoedPrompt(NamedTuple):
    """A prompt that goes before the text."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[Logprobs | None]
    """One per token, if log-probabilities are asked for."""


class ChoiceText:
    """One completion, part by part.

    Args:
        logprobs: makes the log-probabilities, if they are asked for.
        echo: told with the first part.
    """

    def __init__(self, logprobs: CompletionLogprobsBuilder | None, echo: EchoedPrompt | None) -> None:
        self._logprobs = logprobs
        self._echo = echo

    def part(self, choice: CompletionOutput) -> tuple[str, CompletionLogprobs | None]:
        """What is told of the next part, which may be all of it."""
        echo, self._echo = self._echo, None
        text, token_ids = choice.text, list(choice.token_ids)
        logprobs: list[Logprobs | None] = list(choice.logprobs or ())
        if echo is not None:
            text, token_ids = echo.text + text, [*echo.token_ids, *token_ids]
            logprobs = [*echo.logprobs, *logprobs]
        if self._logprobs is None:
            return text, None
        return text, self._logprobs.part(token_ids, logprobs)
