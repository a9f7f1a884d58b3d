"""Log-probabilities as clients get them, in the forms of the chat and completion endpoints and of vLLM."""

from pydantic import BaseModel


class TopLogprob(BaseModel):
    """One token that could have been at a position."""

    token: str
    """Its text; U+FFFD where it holds only a part of a character."""
    logprob: float
    bytes: list[int]
    """Its exact bytes."""


class TokenLogprob(TopLogprob):
    """The token at a position, and the most likely ones."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """Of one message."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(BaseModel):
    """Of one text; with ``echo`` the prompt's tokens come first, the very first without a number."""

    text_offset: list[int]
    """Where each token begins in the text [characters]."""
    tokens: list[str]
    """Their texts; ``bytes:\\xe2\\x82`` where one holds only a part of a character."""
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(BaseModel):
    """One token at a position of the prompt."""

    logprob: float
    rank: int | None
    """1 for the most likely token."""
    decoded_token: str | None


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""By position and token id; the first position has none."""
