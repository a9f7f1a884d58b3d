"""`build`: the one place where all parts of an engine are put together."""

import logging
import struct
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from octavo.config import EngineConfig, ResolvedConfig
from octavo.engine.core import EngineCore
from octavo.engine.engine import Engine
from octavo.kernels.program import RopeSpec
from octavo.kernels.select import available_threads
from octavo.kv.hashing import BlockHasher, FieldValue, model_root
from octavo.kv.manager import KVCacheManager
from octavo.models.default_model import resolve_model_path
from octavo.models.loaded import LoadedModel, load_model
from octavo.resolve import MachineFacts, ModelFacts, kv_cache_spec, resolve
from octavo.runner.kernels import make_kernels, native_isas
from octavo.runner.memory import free_memory
from octavo.runner.model_runner import ModelRunner
from octavo.sched.scheduler import Scheduler

logger = logging.getLogger(__name__)

_SLOW = (
    "the native kernels are missing or do not load, so the numpy reference computes, many times slower; "
    "`octavo doctor` looks into it, and kernels=reference silences this"
)


class Built(NamedTuple):
    """An engine, and the parts of it that are worth looking at."""

    engine: Engine
    config: ResolvedConfig
    model: LoadedModel
    kv: KVCacheManager


def build_engine(config: EngineConfig) -> Engine:
    """An engine that is ready for requests; for errors see `build`."""
    return build(config).engine


def build(config: EngineConfig) -> Built:
    """Load the model and put an engine around it.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine.
        ModelLoadError: the model cannot be found, read or fetched.
        KernelUnavailableError: kernels were chosen that cannot run here.
    """
    chat_template = config.model.chat_template
    model = load_model(
        resolve_model_path(config.model.model),
        chat_template=None if chat_template is None else Path(chat_template),
    )
    facts = model_facts(model)
    resolved = resolve(config, facts, measure_machine(model))
    logger.info("configuration: %s", asdict(resolved))
    if config.runner.kernels == "auto" and resolved.kernels == "reference":
        logger.warning(_SLOW)
    interpreter, sampler = make_kernels(resolved, model.program, kv_cache_spec(config, facts))
    runner = ModelRunner(
        interpreter,
        sampler,
        max_num_seqs=resolved.scheduler.max_num_seqs,
        max_num_batched_tokens=resolved.scheduler.max_num_batched_tokens,
        max_model_len=resolved.max_model_len,
        vocab_size=model.spec.vocab_size,
        eos_token_ids=model.tokenizer.eos_token_ids,
    )
    kv = KVCacheManager(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        enable_prefix_caching=resolved.enable_prefix_caching,
        watermark=resolved.watermark,
        max_model_len=resolved.max_model_len,
    )
    scheduler = Scheduler(resolved.scheduler, kv, max_model_len=resolved.max_model_len)
    hasher = BlockHasher(resolved.block_size, hash_root(resolved, model))
    engine = Engine(
        EngineCore(scheduler, runner),
        model.tokenizer,
        block_hasher=hasher if resolved.enable_prefix_caching else None,
    )
    return Built(engine, resolved, model, kv)


def model_facts(model: LoadedModel) -> ModelFacts:
    """What configuration depends on, out of everything that is known about the model."""
    spec = model.spec
    return ModelFacts(
        path=str(model.path),
        architecture=spec.architecture,
        context_length=spec.context_length,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
    )


def measure_machine(model: LoadedModel) -> MachineFacts:
    """What this machine offers beside the weights, which native kernels copy into a layout of their own."""
    return MachineFacts(
        free_bytes=max(free_memory() - model.weight_bytes, 0),
        num_cpus=available_threads(),
        native_isas=native_isas(),
    )


def hash_root(config: ResolvedConfig, model: LoadedModel) -> bytes:
    """Where all chains of block hashes start: equal only where K/V is equal to the bit."""
    return model_root(
        model.fingerprint,
        kv_dtype=config.kv_dtype,
        kv_layout=f"{config.kernels}/{config.isa}",
        rope_parameters=_rope_parameters(model.spec.rope),
    )


def _rope_parameters(rope: RopeSpec) -> dict[str, FieldValue]:
    return {
        "style": rope.style.value,
        "rotary_dim": rope.rotary_dim,
        "frequencies": struct.pack(f"<{len(rope.frequencies)}d", *rope.frequencies),
        "magnitude": rope.magnitude,
    }
