"""`RequestUpdate`: what one step changed for one request, as the engine hears of it."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.sched.output import TokenLogprobs
from octavo.sched.request import FinishReason


class RequestUpdate(NamedTuple):
    """A new token, prompt log-probabilities, the end of a request, or several of these."""

    request_id: str
    token_id: int | None = None
    """The new token; ``None`` while the prompt is being computed, and on error."""
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: Sequence[TokenLogprobs] = ()
    finish_reason: FinishReason | None = None
    """Set if this was the last update of the request."""
    stop_reason: int | str | None = None
    """The stop token id that ended it; ``None`` for the end-of-sequence token."""
    error: str | None = None
    """Why the request failed, with ``FinishReason.ERROR``."""
    num_cached_tokens: int = 0
    """Tokens that the first admission found in the cache."""
