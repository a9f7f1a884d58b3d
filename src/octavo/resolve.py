"""`resolve`: configuration, model and machine in; a configuration that leaves nothing open out. Pure."""

from typing import Literal, NamedTuple

from octavo.config import EngineConfig, ResolvedConfig
from octavo.errors import ConfigError, KernelUnavailableError
from octavo.kv.spec import KVCacheSpec
from octavo.runner.cache_size import CacheSizeOptions, kv_cache_blocks


class ModelFacts(NamedTuple):
    """What a model file says that configuration depends on."""

    path: str
    architecture: str
    context_length: int
    """Longest sequence the model was made for [tokens]."""
    num_layers: int
    num_kv_heads: int
    head_dim: int


class MachineFacts(NamedTuple):
    """What this machine offers."""

    free_bytes: int
    """Memory that this process can still take."""
    num_cpus: int
    """Threads that run at once: affinity mask and cgroup quota respected."""
    native_isas: tuple[str, ...]
    """Instruction sets the native kernels can use here, the best first; empty without the library."""


def resolve(config: EngineConfig, model: ModelFacts, machine: MachineFacts) -> ResolvedConfig:
    """Decide everything that was left open.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine; the message says what would.
        KernelUnavailableError: kernels were chosen that cannot run here.
    """
    cache = config.cache
    kernels, isa = _choose_kernels(config, machine)
    max_model_len = _max_model_len(config.model.max_model_len, model)
    spec = kv_cache_spec(config, model)
    num_blocks = kv_cache_blocks(
        CacheSizeOptions(cache.num_blocks, cache.kv_cache_memory, cache.kv_cache_memory_share),
        spec,
        free_bytes=machine.free_bytes,
        max_model_len=max_model_len,
        max_num_seqs=config.scheduler.max_num_seqs,
    )
    return ResolvedConfig(
        model=model.path,
        architecture=model.architecture,
        chat_template=config.model.chat_template or "model",
        max_model_len=max_model_len,
        block_size=cache.block_size,
        num_blocks=num_blocks,
        kv_cache_bytes=(num_blocks + 1) * spec.bytes_per_block,
        kv_bytes_per_token=spec.bytes_per_token,
        kv_dtype=cache.kv_dtype,
        enable_prefix_caching=cache.enable_prefix_caching,
        watermark=cache.watermark,
        scheduler=config.scheduler,
        kernels=kernels,
        isa=isa,
        num_threads=1 if kernels == "reference" else config.runner.num_threads or machine.num_cpus,
    )


def kv_cache_spec(config: EngineConfig, model: ModelFacts) -> KVCacheSpec:
    """The shape of the KV cache of this model under this configuration."""
    return KVCacheSpec(
        block_size=config.cache.block_size,
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=config.cache.kv_dtype,
    )


def _max_model_len(wanted: int | None, model: ModelFacts) -> int:
    if wanted is None:
        return model.context_length
    if wanted > model.context_length:
        raise ConfigError(
            f"max_model_len is {wanted}, but the model was made for at most {model.context_length} tokens; "
            f"lower it or leave it out"
        )
    return wanted


def _choose_kernels(
    config: EngineConfig, machine: MachineFacts
) -> tuple[Literal["native", "reference"], str]:
    kernels, isa = config.runner.kernels, config.runner.isa
    if kernels == "reference" or (kernels == "auto" and isa == "auto" and not machine.native_isas):
        return "reference", "numpy"
    if not machine.native_isas:
        raise KernelUnavailableError(
            "the native kernels are not built here; build them with `make build`, or choose kernels=reference"
        )
    if isa == "auto":
        return "native", machine.native_isas[0]
    if isa not in machine.native_isas:
        raise KernelUnavailableError(
            f"this machine cannot run isa={isa}; it can run {', '.join(machine.native_isas)} (or auto)"
        )
    return "native", isa
