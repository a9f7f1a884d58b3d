"""`resolve`: configuration, model and machine in; a configuration that leaves nothing open out. Pure."""

from typing import Literal, NamedTuple

from octavo.config import EngineConfig, ResolvedConfig
from octavo.diagnostics import shown
from octavo.errors import ConfigError
from octavo.kernels.select import NativeSupport, choose_isa
from octavo.kv.spec import KVCacheSpec
from octavo.runner.cache_size import CacheSizeOptions, kv_cache_blocks


class ModelFacts(NamedTuple):
    """What a model file says that configuration depends on."""

    path: str
    architecture: str
    context_length: int
    """Longest sequence the model was made for [tokens]."""


class MachineFacts(NamedTuple):
    """What this machine offers."""

    free_bytes: int
    """Memory that this process can still take."""
    num_cpus: int
    """Threads that run at once: affinity mask and cgroup quota respected."""
    native: NativeSupport
    """What the native kernels can do here."""


def resolve(
    config: EngineConfig, model: ModelFacts, *, machine: MachineFacts, kv_spec: KVCacheSpec
) -> ResolvedConfig:
    """Decide everything that was left open.

    Args:
        config: what was asked for.
        model: what is to run.
        machine: where.
        kv_spec: the shape of the KV cache of this model under this configuration.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine; the message says what would.
        KernelUnavailableError: kernels were chosen that cannot run here.
    """
    cache = config.cache
    kernels, isa = _choose_kernels(config, machine)
    max_model_len = _max_model_len(config.model.max_model_len, model)
    num_blocks = kv_cache_blocks(
        CacheSizeOptions(cache.num_blocks, cache.kv_cache_memory, cache.kv_cache_memory_share),
        kv_spec,
        free_bytes=machine.free_bytes,
        max_model_len=max_model_len,
        max_num_seqs=config.scheduler.max_num_seqs,
    )
    return ResolvedConfig(
        model=model.path,
        architecture=model.architecture,
        quantization=config.model.quantization,
        chat_template=config.model.chat_template or "model",
        max_model_len=max_model_len,
        block_size=cache.block_size,
        num_blocks=num_blocks,
        kv_cache_bytes=(num_blocks + 1) * kv_spec.bytes_per_block,
        kv_bytes_per_token=kv_spec.bytes_per_token,
        kv_dtype=kv_spec.dtype,
        enable_prefix_caching=cache.enable_prefix_caching,
        watermark=cache.watermark,
        scheduler=config.scheduler,
        kernels=kernels,
        isa=isa,
        num_threads=1 if kernels == "reference" else config.runner.num_threads or machine.num_cpus,
    )


def _max_model_len(wanted: int | None, model: ModelFacts) -> int:
    if wanted is None:
        return model.context_length
    if wanted > model.context_length:
        raise ConfigError(
            f"max_model_len is {shown(wanted)}, but the model was made for at most "
            f"{model.context_length} tokens; lower it or leave it out"
        )
    return wanted


def _choose_kernels(
    config: EngineConfig, machine: MachineFacts
) -> tuple[Literal["native", "reference"], str]:
    kernels, isa = config.runner.kernels, config.runner.isa
    if kernels == "reference" or (kernels == "auto" and isa == "auto" and machine.native.problem):
        return "reference", "numpy"
    return "native", choose_isa(isa, machine.native)
