"""Configuration: frozen dataclasses that a user fills, and `resolve`, which leaves nothing open.

Defaults < command line. The command line is generated from these dataclasses, so a field's
docstring is its help text. Everything that depends on the model or the machine is decided in one
pure function, `octavo.resolve.resolve`; no ``None`` and no "auto" survives it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from octavo.diagnostics import shown
from octavo.errors import ConfigError
from octavo.kv.spec import KVDtype, KVDtypeChoice
from octavo.vllm_options import FOREIGN_OPTIONS, without_harmless

PolicyName = Literal["fcfs", "priority"]
QuantizationName = Literal["none", "int8", "int4"]
GenerationConfigName = Literal["auto", "vllm"]
KernelsName = Literal["auto", "native", "reference"]
IsaName = Literal["auto", "generic", "avx2", "avx512", "avx512vnni", "neon", "neondotprod"]


MAX_BLOCK_SIZE = 65_536
MAX_BLOCKS = 2**31 - 1
"""Block ids are 32-bit integers."""
MAX_BATCHED_TOKENS = 1_048_576
MAX_SEQS = 65_536
MAX_WAITING_REQUESTS = 16_777_216
MAX_WAITING_TOKENS = 2**40
MAX_QUEUE_TIMEOUT = 86_400
MAX_THREADS = 1024
MAX_LORAS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """What is loaded."""

    model: str = "smollm2-135m"
    """A .gguf file, a Hugging Face folder, a name on the hub, or the short name of the default model."""
    max_model_len: int | None = None
    """Longest sequence, prompt and output together [tokens]; the model's own context if omitted."""
    chat_template: str | None = None
    """A jinja2 file that replaces the model's chat template."""
    revision: str | None = None
    """Branch, tag or commit of a model on the hub; its main branch if omitted."""
    offline: bool = False
    """Fetch nothing: take models of the hub as they were fetched before."""
    quantization: QuantizationName = "none"
    """What the weights of safetensors files become; packed once, into the cache folder."""
    generation_config: GenerationConfigName = "auto"
    """Take defaults of sampling parameters from the model's files, or vllm: the neutral ones always."""
    lora: tuple[str, ...] = ()
    """A LoRA adapter to load, as name=path; generate and chat answer with the first. Repeatable."""
    max_loras: int = 8
    """Most LoRA adapters loaded at once."""

    def __post_init__(self) -> None:
        check_types(self)
        check_bounds("max_loras", self.max_loras, MAX_LORAS)
        for entry in self.lora:
            name, _, path = entry.partition("=")
            if not name or not path:
                raise ConfigError(f"lora must be name=path, got {shown(entry)}")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ConfigError(
                f"max_model_len must be at least 2, one token of prompt and one of output, "
                f"got {shown(self.max_model_len)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheConfig:
    """The paged KV cache."""

    block_size: int = 16
    """Tokens per block, a multiple of 8."""
    kv_cache_memory: str | None = None
    """Size of the KV cache, as in 512MiB or 4GiB; a share of the free memory if omitted."""
    kv_cache_memory_share: float = 0.25
    """Share of the free memory (cgroup limits respected) used when kv_cache_memory is omitted."""
    num_blocks: int | None = None
    """Number of blocks; overrides the memory settings."""
    kv_dtype: KVDtypeChoice = "auto"
    """Number format of K and V; auto is int8, half the room of float16, if heads are multiples of 16."""
    enable_prefix_caching: bool = True
    """Find and share blocks that hold the same prefix."""
    watermark: float = 0.01
    """Share of the blocks kept free when a waiting request is admitted beside running ones."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.block_size < 8 or self.block_size % 8:
            raise ConfigError(f"block_size must be a positive multiple of 8, got {shown(self.block_size)}")
        check_bounds("block_size", self.block_size, MAX_BLOCK_SIZE)
        if not 0.0 < self.kv_cache_memory_share <= 0.95:
            raise ConfigError(
                f"kv_cache_memory_share must be above 0 and at most 0.95, "
                f"got {shown(self.kv_cache_memory_share)}"
            )
        if not 0.0 <= self.watermark < 1.0:
            raise ConfigError(f"watermark must be at least 0 and below 1, got {shown(self.watermark)}")
        if self.num_blocks is not None:
            check_bounds("num_blocks", self.num_blocks, MAX_BLOCKS)


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """Who runs in a step."""

    max_num_batched_tokens: int = 512
    """Most tokens computed in one step."""
    max_num_seqs: int = 64
    """Most requests running at once."""
    enable_chunked_prefill: bool = True
    """Spread a long prompt over several steps."""
    long_prefill_token_threshold: int = 0
    """Most tokens of one prompt per step while other requests exist; 0 sets no limit."""
    long_prefill_fair_share: bool = False
    """Let that limit grow to an equal share of the step's tokens, so that few requests still fill it."""
    scheduling_policy: PolicyName = "fcfs"
    """First come first served, or by priority (lower first)."""
    max_waiting_requests: int = 4096
    """Bound of the waiting queue; further requests are refused."""
    max_waiting_tokens: int = 4_194_304
    """Bound of the waiting prompts together [tokens]; further requests are refused."""
    queue_timeout: float = 0.0
    """Refuse a request that was not admitted after so many seconds; 0 sets no limit."""

    def __post_init__(self) -> None:
        check_types(self)
        check_bounds("max_num_batched_tokens", self.max_num_batched_tokens, MAX_BATCHED_TOKENS)
        check_bounds("max_num_seqs", self.max_num_seqs, MAX_SEQS)
        check_bounds("max_waiting_requests", self.max_waiting_requests, MAX_WAITING_REQUESTS)
        check_bounds("max_waiting_tokens", self.max_waiting_tokens, MAX_WAITING_TOKENS)
        if not 0.0 <= self.queue_timeout <= MAX_QUEUE_TIMEOUT:
            raise ConfigError(
                f"queue_timeout must be between 0 and {MAX_QUEUE_TIMEOUT} seconds, "
                f"got {shown(self.queue_timeout)}"
            )
        if self.long_prefill_token_threshold < 0:
            raise ConfigError(
                f"long_prefill_token_threshold must be at least 0, "
                f"got {shown(self.long_prefill_token_threshold)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerConfig:
    """What computes."""

    kernels: KernelsName = "auto"
    """Native code, or the numpy reference (slow, obvious)."""
    isa: IsaName = "auto"
    """Instruction set of the native kernels; the best that the machine has if auto."""
    num_threads: int | None = None
    """Threads; from affinity mask and cgroup quota if omitted."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.num_threads is not None:
            check_bounds("num_threads", self.num_threads, MAX_THREADS)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Everything an engine is built from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> "EngineConfig":
        """Sort options by name into the parts; a name is unique over all of them.

        Options of vLLM are accepted where they ask for what happens anyway, as ``tensor_parallel_size=1``.

        Raises:
            ConfigError: an option does not exist, with the nearest names, or its value is wrong.
        """
        rest = without_harmless(options)
        parts = {}
        for part in fields(cls):
            kind: Any = part.default_factory
            parts[part.name] = kind(**{f.name: rest.pop(f.name) for f in fields(kind) if f.name in rest})
        if rest:
            raise _unknown_option(next(iter(rest)))
        return cls(**parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedConfig:
    """What an engine really runs with. Every field is a value; `dataclasses.asdict` is what is logged."""

    model: str
    """Path of the model file."""
    architecture: str
    quantization: QuantizationName
    """What the weights became when they were loaded; none: they are as stored."""
    chat_template: str
    """Path of the template, or "model" for the model's own."""
    max_model_len: int
    """Longest sequence, prompt and output together [tokens]."""
    block_size: int
    num_blocks: int
    """Usable blocks."""
    kv_cache_bytes: int
    """Size of the KV cache, null block included."""
    kv_bytes_per_token: int
    kv_dtype: KVDtype
    enable_prefix_caching: bool
    watermark: float
    scheduler: SchedulerConfig
    kernels: Literal["native", "reference"]
    isa: str
    """Instruction set of the native kernels; "numpy" with the reference."""
    num_threads: int

    @property
    def num_kv_tokens(self) -> int:
        """Tokens that the whole KV cache holds."""
        return self.num_blocks * self.block_size

    @property
    def max_concurrency(self) -> float:
        """How many sequences of the greatest length fit in the KV cache at once."""
        return self.num_kv_tokens / self.max_model_len


OPTION_NAMES = tuple(f.name for part in fields(EngineConfig) for f in fields(part.default_factory))  # type: ignore[arg-type]
"""Names of all options, over all parts."""


def _unknown_option(name: str) -> ConfigError:
    if name in FOREIGN_OPTIONS:
        return ConfigError(f"there is no option {name}: {FOREIGN_OPTIONS[name].way_out}; leave it out")
    near = difflib.get_close_matches(name, OPTION_NAMES, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(OPTION_NAMES)}"
    return ConfigError(f"there is no option {name}; {hint}")


def check_bounds(name: str, value: int, high: int) -> None:
    """Refuse a count below 1 or above ``high``.

    Raises:
        ConfigError: it is.
    """
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, got {shown(value)}; raise it or leave it out")
    if value > high:
        raise ConfigError(f"{name} must be at most {high}, got {shown(value)}; lower it or leave it out")


def check_types(config: object) -> None:
    """Compare every field with its annotation: a number, a text, several of one, a flag, a name, or ``None``.

    Raises:
        ConfigError: a value is of another type.
    """
    for name, annotation in get_type_hints(type(config)).items():
        value = getattr(config, name)
        choices = get_args(annotation) if getattr(annotation, "__origin__", None) is Literal else ()
        if choices:
            if value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")
            continue
        if getattr(annotation, "__origin__", None) is tuple:
            item_type = get_args(annotation)[0]
            if type(value) is not tuple or any(type(item) is not item_type for item in value):
                raise ConfigError(f"{name} must be a tuple of {item_type.__name__}, got {shown(value)}")
            continue
        allowed = get_args(annotation) or (annotation,)
        is_whole_number = type(value) is int and float in allowed
        if type(value) not in allowed and not is_whole_number:
            kinds = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
            raise ConfigError(f"{name} must be of type {kinds}, got {shown(value)}")
