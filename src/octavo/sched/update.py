"""`RequestUpdate`: what one step changed for one request, as the engine hears of it."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.sched.output import RequestResult, TokenLogprobs
from octavo.sched.request import FinishReason, Request
from octavo.sched.stop import stop_verdict


class RequestUpdate(NamedTuple):
    """A new token, prompt log-probabilities, the end of a request, or several of these."""

    request_id: str
    token_id: int | None = None
    """The new token; ``None`` while the prompt is being computed, and on error."""
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: Sequence[TokenLogprobs] = ()
    finish_reason: FinishReason | None = None
    """Set if this is the last update of the request."""
    stop_reason: int | str | None = None
    """The stop token id that ended it; ``None`` for the end-of-sequence token."""
    error: str | None = None
    """Why the request failed, with ``FinishReason.ERROR``."""
    embedding: Sequence[float] | None = None
    """Of the prompt; comes with the end of the request."""

    @property
    def has_only_token(self) -> bool:
        """Whether it tells of a new token, and of nothing else."""
        return self.finish_reason is None and self.logprobs is None and not self.prompt_logprobs


def apply_result(
    request: Request, result: RequestResult, *, samples: bool, limit: int
) -> RequestUpdate | None:
    """Take in what a step computed for ``request``; ``None`` if there is nothing to tell.

    Args:
        request: gets the new token, and its end if this is it.
        result: what the runner returned for it.
        samples: whether the step was to sample a token.
        limit: length at which any sequence ends [tokens].
    """
    token_id = result.token_id
    if token_id is None or result.error is not None:
        return _apply_other(request, result, samples=samples)
    request.append_token(token_id)
    verdict = stop_verdict(request, token_id, limit=limit)
    if verdict is not None:
        request.finish(*verdict)
    return RequestUpdate(
        request.request_id,
        token_id,
        result.logprobs,
        result.prompt_logprobs,
        request.finish_reason,
        request.stop_reason,
    )


def _apply_other(request: Request, result: RequestResult, *, samples: bool) -> RequestUpdate | None:
    """Take in anything but a token."""
    error = result.error
    if error is None:
        error = _lack(request, result, samples=samples)
    if error is not None:
        request.finish(FinishReason.ERROR)
        return RequestUpdate(request.request_id, finish_reason=FinishReason.ERROR, error=error)
    if result.embedding is not None:
        request.finish(FinishReason.STOP)
        return RequestUpdate(request.request_id, finish_reason=FinishReason.STOP, embedding=result.embedding)
    return _prompt_update(request, result)


def _lack(request: Request, result: RequestResult, *, samples: bool) -> str | None:
    """What the runner owes, if it does."""
    if samples:
        return "the runner returned no token"
    is_pooled = request.pooling is not None and request.num_computed_tokens == request.num_tokens
    return "the runner returned no embedding" if is_pooled and result.embedding is None else None


def _prompt_update(request: Request, result: RequestResult) -> RequestUpdate | None:
    """Of a step that computed a part of the prompt and reached no token to sample."""
    if not result.prompt_logprobs:
        return None
    return RequestUpdate(request.request_id, prompt_logprobs=result.prompt_logprobs)
