"""`build`: the one place where all parts of an engine are put together."""

import logging
import stat
import struct
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from octavo.config import CacheConfig, EngineConfig, ModelConfig, ResolvedConfig
from octavo.engine.adapters import AdapterRegistry
from octavo.engine.core import EngineCore
from octavo.engine.engine import Engine
from octavo.errors import CapacityError, ConfigError, ModelLoadError, RequestError
from octavo.kernels.program import RopeSpec
from octavo.kernels.select import available_threads, native_support
from octavo.kv.hashing import BlockHasher, FieldValue, model_root
from octavo.kv.manager import KVCacheManager
from octavo.kv.spec import KVCacheSpec, choose_kv_dtype
from octavo.lora_request import LoRARequest
from octavo.models.default_model import resolve_model_path
from octavo.models.loaded import LoadedModel, load_model
from octavo.models.spec import ModelSpec
from octavo.resolve import MachineFacts, ModelFacts, resolve
from octavo.runner.adapter_loader import ModelAdapterLoader
from octavo.runner.grammar import LLGuidanceCompiler
from octavo.runner.kernels import KernelChoice, StepLimits, make_kernels
from octavo.runner.memory import free_memory
from octavo.runner.model_runner import ModelRunner
from octavo.runner.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.sched.scheduler import Scheduler

logger = logging.getLogger(__name__)

MAX_TEMPLATE_BYTES = 2**20


class Built(NamedTuple):
    """An engine, and the parts of it that are worth looking at."""

    engine: Engine
    config: ResolvedConfig
    model: LoadedModel
    kv: KVCacheManager
    kv_spec: KVCacheSpec
    default_sampling_params: SamplingParams
    """Of requests that bring none: what the model's files recommend."""


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
    model = _load(config.model)
    machine, kv_spec = measure_machine(model), _kv_cache_spec(config.cache, model.spec)
    facts = ModelFacts(str(model.path), model.spec.architecture, model.spec.context_length)
    resolved = resolve(config, facts, machine=machine, kv_spec=kv_spec)
    logger.info("configuration: %s", asdict(resolved))
    if config.runner.kernels == "auto" and resolved.kernels == "reference":
        logger.warning(
            "the numpy reference computes, many times slower: %s (kernels=reference silences this)",
            machine.native.problem,
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
    grammars = LLGuidanceCompiler(model.tokenizer)
    runner = _make_runner(resolved, model, kv_spec, grammars)
    engine = Engine(
        EngineCore(scheduler, runner),
        model.tokenizer,
        block_hasher=hasher if resolved.enable_prefix_caching else None,
        grammars=grammars,
        adapters=AdapterRegistry(
            ModelAdapterLoader(model, runner.set_adapter), max_loras=config.model.max_loras
        ),
    )
    _load_adapters(engine, config.model.lora)
    return Built(engine, resolved, model, kv, kv_spec, _default_sampling_params(config.model, model))


def _default_sampling_params(config: ModelConfig, model: LoadedModel) -> SamplingParams:
    recommended: dict[str, Any] = {**model.sampling_defaults} if config.generation_config == "auto" else {}
    return SamplingParams(**recommended)


def _load(config: ModelConfig) -> LoadedModel:
    return load_model(
        resolve_model_path(config.model, revision=config.revision, offline=config.offline),
        chat_template=_template_file(config.chat_template),
        max_model_len=config.max_model_len,
        quantization=config.quantization,
        progress=True,
    )


def _load_adapters(engine: Engine, entries: Sequence[str]) -> None:
    """Load what was asked for at start, ``name=path`` each."""
    for entry in entries:
        name, _, path = entry.partition("=")
        try:
            engine.add_lora(LoRARequest(name, lora_path=path))
        except (RequestError, CapacityError) as error:
            engine.close()
            raise ConfigError(f"lora {name}: {error}") from None


def _template_file(name: str | None) -> Path | None:
    """The file to read a chat template from; a pipe or a device could be read for ever."""
    if name is None:
        return None
    path = Path(name)
    try:
        status = path.stat()
    except (OSError, ValueError):
        return path  # reading it says what is wrong
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"chat_template is {name}, which is no regular file; give a jinja2 file")
    if status.st_size > MAX_TEMPLATE_BYTES:
        raise ConfigError(
            f"chat_template is {name}, a file of {status.st_size} bytes, but a template may have at most "
            f"{MAX_TEMPLATE_BYTES}; give a jinja2 file"
        )
    return path


def _kv_cache_spec(cache: CacheConfig, model: ModelSpec) -> KVCacheSpec:
    return KVCacheSpec(
        block_size=cache.block_size,
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=choose_kv_dtype(cache.kv_dtype, model.head_dim),
    )


def _make_runner(
    config: ResolvedConfig, model: LoadedModel, kv_spec: KVCacheSpec, grammars: LLGuidanceCompiler
) -> ModelRunner:
    max_num_tokens, max_num_seqs = config.scheduler.max_num_batched_tokens, config.scheduler.max_num_seqs
    try:
        interpreter, hidden_states = make_kernels(
            KernelChoice(config.kernels, config.isa, config.num_threads),
            model.program,
            kv_spec=kv_spec,
            num_blocks=config.num_blocks,
            limits=StepLimits(max_num_tokens, max_num_seqs),
        )
        return ModelRunner(
            interpreter,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_tokens,
            max_model_len=config.max_model_len,
            sampling_rows=SamplingRows(
                max_num_seqs, model.spec.vocab_size, model.tokenizer.eos_token_ids, grammars
            ),
            hidden_states=hidden_states,
        )
    except ModelLoadError as error:  # found in the weights, by kernels that do not know the file
        raise ModelLoadError(f"{model.path}: {error}") from None
    except MemoryError:
        raise ConfigError(
            f"there is not enough memory for steps of max_num_batched_tokens={max_num_tokens} tokens and "
            f"max_num_seqs={max_num_seqs} sequences beside a KV cache of {config.kv_cache_bytes} bytes; "
            f"lower one of them"
        ) from None


def measure_machine(model: LoadedModel) -> MachineFacts:
    """What this machine offers beside the weights, which native kernels copy into a layout of their own."""
    return MachineFacts(
        free_bytes=max(free_memory() - model.weight_bytes, 0),
        num_cpus=available_threads(),
        native=native_support(),
    )


def hash_root(config: ResolvedConfig, model: LoadedModel) -> bytes:
    """Where all chains of block hashes start: equal only where K/V is equal to the bit."""
    return model_root(
        model.fingerprint,
        kv_dtype=config.kv_dtype,
        kv_layout=f"{config.kernels}/{config.isa}",
        rope_parameters=_rope_parameters(model.spec),
    )


def _rope_parameters(spec: ModelSpec) -> dict[str, FieldValue]:
    return {f"layer{number}": _rope_bytes(layer.rope) for number, layer in enumerate(spec.layers)}


def _rope_bytes(rope: RopeSpec) -> bytes:
    head = f"{rope.style.value} {rope.rotary_dim} {rope.magnitude!r} "
    return head.encode() + struct.pack(f"<{len(rope.frequencies)}d", *rope.frequencies)
