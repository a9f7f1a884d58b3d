"""Stop verdicts on tokens. Pure: they say whether a request is at its end, and change nothing.

Stop strings are found where text is made and reach the scheduler through `Scheduler.finish`.
"""

from typing import NamedTuple

from octavo.sched.request import FinishReason, Request


class StopVerdict(NamedTuple):
    """Why a request is at its end."""

    finish_reason: FinishReason
    stop_reason: int | None = None
    """The stop token id; ``None`` for the end-of-sequence token and for length."""


def stop_verdict(request: Request, token_id: int, *, limit: int) -> StopVerdict | None:
    """Whether ``token_id``, the last token of ``request``, ends it; ``limit`` bounds any sequence [tokens].

    End-of-sequence token, then stop tokens, then length. ``min_tokens`` holds back the first two
    but never the length, or a request whose ``min_tokens`` do not fit would go on for ever.
    """
    if token_id in request.end_token_ids and request.num_output_tokens >= request.sampling_params.min_tokens:
        is_eos = token_id in request.eos_token_ids and not request.sampling_params.ignore_eos
        return StopVerdict(FinishReason.STOP, None if is_eos else token_id)
    if request.num_tokens >= request.max_num_tokens or request.num_tokens >= limit:
        return StopVerdict(FinishReason.LENGTH)
    return None
