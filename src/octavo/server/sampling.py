"""HTTP fields to `SamplingParams`. Ranges are checked there, so that they are the same for every caller."""

from collections.abc import Mapping
from typing import Any

from octavo.diagnostics import shown
from octavo.errors import InvalidRequestError
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.server.protocol.request import GenerationRequest
from octavo.server.shape import structured_outputs

_SAME_NAMES = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "min_tokens",
    "ignore_eos",
    "skip_special_tokens",
)
_NEGATIVE_SEEDS = 2**63


def sampling_params(
    body: GenerationRequest,
    defaults: SamplingParams,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    """The parameters of a request; what it leaves out or sets to null has its default.

    Args:
        body: the request.
        defaults: of the model.
        max_tokens: bound of generated tokens.
        logprobs: alternatives of each generated token.
        prompt_logprobs: alternatives of each token of the prompt.

    Raises:
        InvalidRequestError: a value is out of range.
    """
    given: dict[str, Any] = {name: getattr(body, name) for name in _SAME_NAMES}
    return defaults.clone(
        **{name: value for name, value in given.items() if value is not None},
        max_tokens=max_tokens,
        seed=_seed(body.seed),
        logit_bias=_biases(body.logit_bias or {}),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        structured_outputs=structured_outputs(body),
        output_kind=RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY,
    )


def _seed(seed: int | None) -> int | None:
    """The OpenAI API's seeds are signed 64-bit numbers, the engine's unsigned ones."""
    if seed is not None and -_NEGATIVE_SEEDS <= seed < 0:
        return seed + 2 * _NEGATIVE_SEEDS
    return seed


def _biases(biases: Mapping[str, float]) -> dict[int, float]:
    """JSON has no integer keys."""
    for name in biases:
        if not (name.isascii() and name.isdecimal() and len(name) < 20):
            raise InvalidRequestError(
                f"logit_bias must map token ids to numbers, got the key {shown(name)}", param="logit_bias"
            )
    return {int(name): value for name, value in biases.items()}
