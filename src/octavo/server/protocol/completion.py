"""``/v1/completions``."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from octavo.server.protocol.logprobs import CompletionLogprobs, PromptLogprobs
from octavo.server.protocol.prompts import Prompts
from octavo.server.protocol.request import MAX_LOGPROBS, GenerationRequest
from octavo.server.protocol.usage import Usage


class CompletionRequest(GenerationRequest):
    """Continue texts."""

    prompt: Prompts
    """A text, token ids, or several of either."""
    echo: bool | None = None
    """Put the prompt before the text."""
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    """Log-probabilities of the tokens, with ``echo`` of the prompt's too, and of this many alternatives."""
    add_special_tokens: bool = True
    """Put the tokens around a text that the model wants there (one BOS)."""
    parse_special: bool = False
    """Take ``<|im_start|>`` and the like in a text as the control tokens they name."""
    suffix: str | None = None
    """Not supported."""
    best_of: int | None = None
    """Not supported."""


class CompletionChoice(BaseModel):
    """One continuation: of prompt ``index // n``."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    """``None`` in a chunk that is not the last one."""
    stop_reason: int | str | None = None
    seed: int | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(BaseModel):
    """The whole answer, or with ``stream`` what is new."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    """In a stream only where ``stream_options`` ask for it."""
