"""What a request must satisfy before the scheduler sees it, so that nothing it says can hurt a step."""

from collections.abc import Collection, Sequence

from octavo.diagnostics import shown
from octavo.engine.queue_place import QueuePlace
from octavo.errors import InvalidRequestError
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sched.limits import SequenceLimit

_NO_SAMPLING = SamplingParams(temperature=0.0, max_tokens=1, seed=0, output_kind=RequestOutputKind.FINAL_ONLY)
"""Of a request that ends with an embedding."""


def check_place(request_id: object, place: QueuePlace) -> None:
    """Outputs are found by the id, and queues are ordered by the priority and the tenant.

    Raises:
        InvalidRequestError: the id or the tenant is no string, or the priority no integer.
    """
    priority, tenant = place
    if not isinstance(tenant, str):
        raise InvalidRequestError(f"tenant must be a string, got {shown(tenant)}", param="tenant")
    if not isinstance(request_id, str):
        raise InvalidRequestError(f"request_id must be a string, got {shown(request_id)}", param="request_id")
    if type(priority) is not int:
        raise InvalidRequestError(f"priority must be an integer, got {shown(priority)}", param="priority")


def checked_params(params: object) -> SamplingParams:
    """The same, or an error if somebody gives a number or a dict where `SamplingParams` belong.

    Raises:
        InvalidRequestError: they are something else.
    """
    if not isinstance(params, SamplingParams):
        raise InvalidRequestError(
            f"sampling_params must be SamplingParams, as in SamplingParams(temperature=0), "
            f"got a {type(params).__name__}",
            param="sampling_params",
        )
    return params


def split_params(params: object) -> tuple[SamplingParams, PoolingParams | None]:
    """What there is to sample, and to pool: a request does either.

    Raises:
        InvalidRequestError: they are no parameters.
    """
    if isinstance(params, PoolingParams):
        return _NO_SAMPLING, params
    return checked_params(params), None


def check_pooling_params(params: object) -> None:
    """Say so if somebody gives something else where `PoolingParams` belong.

    Raises:
        InvalidRequestError: they are something else.
    """
    if not isinstance(params, PoolingParams):
        raise InvalidRequestError(
            f"pooling_params must be PoolingParams, as in PoolingParams(normalize=True), "
            f"got a {type(params).__name__}",
            param="pooling_params",
        )


def check_request(
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    *,
    cache_salt: str | None,
    vocab_size: int,
    limit: SequenceLimit,
) -> None:
    """Check everything that depends on the model and that `SamplingParams` cannot know.

    Raises:
        InvalidRequestError: an id is no token of the model, or the salt is no text.
        ContextLengthError: the prompt can never fit.
    """
    if isinstance(prompt_token_ids, str | bytes) or not isinstance(prompt_token_ids, Sequence):
        raise InvalidRequestError(
            f"prompt_token_ids must be a list of integers, got a {type(prompt_token_ids).__name__}",
            param="prompt_token_ids",
        )
    limit.check_length(len(prompt_token_ids))  # first: to look at each of millions would hold up a step
    _check_token_ids("prompt_token_ids", prompt_token_ids, vocab_size)
    _check_token_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    _check_token_ids("logit_bias", params.logit_bias, vocab_size)
    if cache_salt is not None:
        _check_salt(cache_salt)


def _check_token_ids(name: str, token_ids: Collection[int], vocab_size: int) -> None:
    # A prompt may have 100,000 tokens: three passes at the speed of C instead of one in Python.
    if not token_ids or (
        set(map(type, token_ids)) == {int} and min(token_ids) >= 0 and max(token_ids) < vocab_size
    ):
        return
    wrong = next(t for t in token_ids if type(t) is not int or not 0 <= t < vocab_size)
    raise InvalidRequestError(
        f"{name} must hold token ids between 0 and {vocab_size - 1}, got {shown(wrong)}", param=name
    )


def _check_salt(cache_salt: object) -> None:
    if not isinstance(cache_salt, str) or not cache_salt or not cache_salt.isprintable():
        raise InvalidRequestError(
            f"cache_salt must be a string of printable characters, at least one, got {shown(cache_salt)}",
            param="cache_salt",
        )
