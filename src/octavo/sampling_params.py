"""`SamplingParams`: how the tokens of one request are chosen and when it ends."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self, TypeVar

from octavo.diagnostics import shown
from octavo.errors import InvalidRequestError
from octavo.structured_outputs import StructuredOutputsParams

T = TypeVar("T")

MAX_SEED = 2**64 - 1
MAX_COUNT = 2**63 - 1
"""Of what has no bound of its own: larger integers are no numbers for whoever counts and records them."""
MAX_LOGPROBS = 20
GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""
MAX_N = 128
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
"""Characters of one stop string: every generated character is compared with every stop string."""


class RequestOutputKind(Enum):
    """What the outputs of a request hold while it runs."""

    CUMULATIVE = 0
    """Every output: everything so far."""
    DELTA = 1
    """Every output: what is new since the one before, of the continuations that have something new."""
    FINAL_ONLY = 2
    """One output, when all is done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """Parameters of one request, under the names vLLM and the OpenAI API use.

    ``None`` for ``stop``, ``stop_token_ids`` or ``logit_bias`` is the same as an empty one. They never change
    once made: ``params.clone(max_tokens=32)`` makes others.

    Raises:
        InvalidRequestError: a value is out of range; ``param`` names the field.
    """

    n: int = 1
    """How many independent continuations to generate."""
    temperature: float = 1.0
    """Softmax temperature; 0, or next to it, is greedy."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose probabilities reach this sum."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 or -1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this fraction of the most likely one."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of each token already generated."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit of a token once per time it was generated."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in the prompt or output."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Token id to a number added to its logit."""
    seed: int | None = None
    """Seed of the counter-based generator; drawn at admission if omitted."""
    max_tokens: int | None = 16
    """Upper bound of generated tokens per continuation; ``None`` is as many as the context holds."""
    min_tokens: int = 0
    """No stop token or stop string ends the request before this many tokens."""
    stop: Sequence[str] = ()
    """Strings that end the generation; not part of the text unless asked for."""
    stop_token_ids: Sequence[int] = ()
    """Token ids that end the generation."""
    include_stop_str_in_output: bool = False
    """Keep the stop string at the end of the text."""
    ignore_eos: bool = False
    """Go on after the model's end-of-sequence token."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    logprobs: int | None = None
    """Return the log-probability of each generated token and of this many alternatives."""
    prompt_logprobs: int | None = None
    """The same for each token of the prompt (the first has none)."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    """What outputs hold while the request runs: everything so far, only what is new, or nothing."""
    structured_outputs: StructuredOutputsParams | None = None
    """The shape that the text must have: JSON of a schema, a regular expression, a choice, a grammar."""

    def __post_init__(self) -> None:
        _check_integer("n", self.n, 1, MAX_N)
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, 1, MAX_COUNT)
        _check_integer(
            "min_tokens", self.min_tokens, 0, MAX_COUNT if self.max_tokens is None else self.max_tokens
        )
        _check_integer("top_k", self.top_k, -1, MAX_COUNT)
        _check_number("temperature", self.temperature, 0.0, math.inf)
        _check_number("top_p", self.top_p, 0.0, 1.0)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.0, math.inf)
        if self.top_p == 0.0:
            raise InvalidRequestError(
                "top_p must be above 0, got 0; use temperature=0 for greedy", param="top_p"
            )
        if self.repetition_penalty == 0.0:
            raise InvalidRequestError(
                "repetition_penalty must be above 0, got 0; 1 turns it off",
                param="repetition_penalty",
            )
        if self.seed is not None:
            _check_integer("seed", self.seed, 0, MAX_SEED)
        for name in ("logprobs", "prompt_logprobs"):
            if (count := getattr(self, name)) is not None:
                _check_integer(name, count, 0, MAX_LOGPROBS)
        if not isinstance(self.output_kind, RequestOutputKind):
            raise InvalidRequestError(
                f"output_kind must be a RequestOutputKind, got {shown(self.output_kind)}",
                param="output_kind",
            )
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            raise InvalidRequestError(
                f"structured_outputs must be StructuredOutputsParams, as in "
                f"StructuredOutputsParams(json_object=True), got {shown(self.structured_outputs)}",
                param="structured_outputs",
            )
        # Copies, so that a caller who changes a list afterwards does not change a request under way.
        object.__setattr__(self, "stop", _checked_stop(self.stop))
        object.__setattr__(self, "stop_token_ids", _checked_token_ids("stop_token_ids", self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _checked_biases(self.logit_bias))

    def clone(self, **changes: object) -> Self:
        """A copy, with other values for the fields that are named.

        Raises:
            InvalidRequestError: a value is out of range.
            TypeError: there is no such field.
        """
        named: dict[str, Any] = changes
        return replace(self, **named)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the logits."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)


def _check_integer(name: str, value: object, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{name} must be an integer, got {shown(value)}", param=name)
    if value < low or (high is not None and value > high):
        # The largest count is a bound of the arithmetic, of no interest to whoever gave too little.
        is_open = value < low and high in (None, MAX_COUNT)
        bound = f"at least {low}" if is_open else f"between {low} and {high}"
        raise InvalidRequestError(f"{name} must be {bound}, got {shown(value)}", param=name)


def _check_number(name: str, value: object, low: float, high: float) -> None:
    # An integer may be larger than any float, and comparing the two is exact; a NaN is in no range.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise InvalidRequestError(f"{name} must be a finite number, got {shown(value)}", param=name)
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} must be between {low} and {high}, got {shown(value)}", param=name)


def _checked_stop(stop: Sequence[str] | None) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else _checked_list("stop", stop)
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequestError(
            f"stop may hold at most {MAX_STOP_STRINGS} strings, got {len(strings)}", param="stop"
        )
    for text in strings:
        if not isinstance(text, str):
            raise InvalidRequestError(f"stop must hold strings, got {shown(text)}", param="stop")
        if not 1 <= len(text) <= MAX_STOP_LENGTH:
            raise InvalidRequestError(
                f"a stop string must have 1 to {MAX_STOP_LENGTH} characters, got {len(text)}", param="stop"
            )
    return strings


def _checked_token_ids(name: str, token_ids: Sequence[int] | None) -> tuple[int, ...]:
    checked = _checked_list(name, token_ids)
    for token_id in checked:
        _check_integer(name, token_id, 0, None)
    return checked


def _checked_biases(biases: Mapping[int, float] | None) -> dict[int, float]:
    if biases is None:
        return {}
    if not isinstance(biases, Mapping):
        raise InvalidRequestError(
            f"logit_bias must map token ids to numbers, got {shown(biases)}", param="logit_bias"
        )
    for token_id, bias in biases.items():
        _check_integer("logit_bias", token_id, 0, None)
        _check_number("logit_bias", bias, -100.0, 100.0)
    return dict(biases)


def _checked_list(name: str, values: Sequence[T] | None) -> tuple[T, ...]:
    if values is None:
        return ()
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidRequestError(f"{name} must be a list, got {shown(values)}", param=name)
    return tuple(values)
