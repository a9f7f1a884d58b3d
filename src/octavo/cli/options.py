"""The options of `generate` and `chat`: the configuration dataclasses themselves, flattened into flags.

`--block-size` is `CacheConfig.block_size`; its help is that field's docstring. There is no second list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter, Token

from octavo.config import CacheConfig, EngineConfig, ModelConfig, RunnerConfig, SchedulerConfig
from octavo.errors import ConfigError, InvalidRequestError
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.structured_outputs import StructuredOutputsParams


def _read_biases(_type: object, tokens: Sequence[Token]) -> dict[int, float]:
    """``42=-5,7=1.5`` as {42: -5.0, 7: 1.5}."""
    text = ",".join(token.value for token in tokens)
    try:
        return {
            int(name): float(value) for name, _, value in (pair.partition("=") for pair in text.split(","))
        }
    except ValueError:
        raise ConfigError(f"--logit-bias must be pairs as in 42=-5,7=1.5, got {text!r}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateSampling(SamplingParams):
    """Sampling parameters whose defaults suit one answer: repeatable, and long enough to say something."""

    temperature: float = 0.0
    """Softmax temperature; 0 is greedy."""
    max_tokens: int = 128
    """Upper bound of generated tokens per continuation."""
    logit_bias: Annotated[
        Mapping[int, float], Parameter(accepts_keys=False, n_tokens=1, converter=_read_biases)
    ] = field(default_factory=dict)
    """Token id to a number added to its logit, as in 42=-5,7=1.5."""
    output_kind: Annotated[RequestOutputKind, Parameter(parse=False)] = RequestOutputKind.CUMULATIVE
    """For programs; the command line has --json."""
    structured_outputs: Annotated[StructuredOutputsParams | None, Parameter(parse=False)] = None
    """For programs."""

    def __post_init__(self) -> None:  # type: ignore[explicit-override]  # typing.override needs 3.12
        # By name: with slots, dataclass makes a new class, which super() without arguments does not know.
        try:
            SamplingParams.__post_init__(self)
        except InvalidRequestError as error:  # nobody's request but a wrong command line
            raise ConfigError(str(error)) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatSampling(GenerateSampling):
    """Sampling parameters whose defaults suit a conversation."""

    temperature: float = 0.2
    """Softmax temperature; 0 is greedy."""
    top_p: float = 0.9
    """Keep the smallest set of most likely tokens whose probabilities reach this sum."""
    max_tokens: int = 512
    """Upper bound of generated tokens per answer."""


ModelOptions = Annotated[ModelConfig, Parameter(name="*", group="Model")]
CacheOptions = Annotated[CacheConfig, Parameter(name="*", group="KV cache")]
SchedulerOptions = Annotated[SchedulerConfig, Parameter(name="*", group="Scheduler")]
RunnerOptions = Annotated[RunnerConfig, Parameter(name="*", group="Kernels")]
GenerateOptions = Annotated[GenerateSampling, Parameter(name="*", group="Sampling")]
ChatOptions = Annotated[ChatSampling, Parameter(name="*", group="Sampling")]
Flag = Annotated[bool, Parameter(negative="")]

DEFAULTS = EngineConfig()
GENERATE_DEFAULTS = GenerateSampling()
CHAT_DEFAULTS = ChatSampling()
