"""Configuration: frozen dataclasses that a user fills, and `resolve`, which leaves nothing open.

Defaults < command line. The command line is generated from these dataclasses, so a field's
docstring is its help text. Everything that depends on the model or the machine is decided in one
pure function, `resolve`; no ``None`` and no "auto" survives it.
"""

from dataclasses import dataclass, field
from typing import Literal

from octavo.errors import ConfigError

KVDtypeName = Literal["float16", "float32"]
PolicyName = Literal["fcfs", "priority"]
KernelsName = Literal["auto", "native", "reference"]
IsaName = Literal["auto", "generic", "avx2", "avx512", "neon"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """What is loaded."""

    model: str = "smollm2-135m"
    """A .gguf file, or the short name of the default model (fetched once, with a checksum)."""
    max_model_len: int | None = None
    """Longest sequence, prompt and output together [tokens]; the model's own context if omitted."""
    chat_template: str | None = None
    """A jinja2 file that replaces the model's chat template."""


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
    kv_dtype: KVDtypeName = "float16"
    """Number format of K and V in the cache."""
    enable_prefix_caching: bool = True
    """Find and share blocks that hold the same prefix."""
    watermark: float = 0.01
    """Share of the blocks kept free when a waiting request is admitted beside running ones."""

    def __post_init__(self) -> None:
        if self.block_size < 8 or self.block_size % 8:
            raise ConfigError(f"block_size must be a positive multiple of 8, got {self.block_size}")
        if not 0.0 < self.kv_cache_memory_share <= 0.95:
            raise ConfigError(
                f"kv_cache_memory_share must be above 0 and at most 0.95, got {self.kv_cache_memory_share}"
            )
        if not 0.0 <= self.watermark < 1.0:
            raise ConfigError(f"watermark must be at least 0 and below 1, got {self.watermark}")
        if self.num_blocks is not None and self.num_blocks < 1:
            raise ConfigError(f"num_blocks must be at least 1, got {self.num_blocks}")


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
    scheduling_policy: PolicyName = "fcfs"
    """First come first served, or by priority (lower first)."""
    max_waiting_requests: int = 4096
    """Bound of the waiting queue; further requests are refused."""

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_waiting_requests"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.long_prefill_token_threshold < 0:
            raise ConfigError(
                f"long_prefill_token_threshold must be at least 0, got {self.long_prefill_token_threshold}"
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
        if self.num_threads is not None and self.num_threads < 1:
            raise ConfigError(f"num_threads must be at least 1, got {self.num_threads}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Everything an engine is built from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
