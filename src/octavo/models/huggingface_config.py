"""``config.json`` of a Hugging Face folder as metadata under GGUF's keys (see `octavo.models.source`)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata, MetadataValue
from octavo.models.huggingface_defaults import DEFAULTS
from octavo.models.huggingface_rope import rope_metadata
from octavo.models.quoting import quote

Entries = dict[str, MetadataValue]

_AROUND_TEXT = ("gemma3", "mistral3")
"""Models of text and images whose text alone is a model that is supported: that is one level down."""
_LONGEST_CONTEXT = 1 << 24
_SILU, _GELU = ("silu", "swish"), ("gelu_pytorch_tanh",)
_SOFT_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
_SLIDING, _FULL = "sliding_attention", "full_attention"


class Family(NamedTuple):
    """How the configuration of one ``model_type`` is read."""

    architecture: str
    """GGUF's name for it."""
    read_more: Callable[["Config"], Entries]
    """Entries that not all architectures have, without the architecture in front."""


class Config:
    """The part of a ``config.json`` that describes the text model.

    Attributes:
        path: of the file.
        values: its entries; `typed` reads them with types and limits.
        family: how it is read.
    """

    def __init__(self, document: Mapping[str, Any], path: Path) -> None:
        """Find the family.

        Raises:
            ModelLoadError: it names no ``model_type`` that is supported, or is quantised already.
        """
        self.path = path
        values, name = _text_model(document)
        family = FAMILIES.get(name) if isinstance(name, str) else None
        if family is None:
            raise ModelLoadError(
                f"{path}: model_type {quote(name)} is not supported; supported: {', '.join(FAMILIES)}"
            )
        self.family = family
        self.values = {**DEFAULTS[str(name)], **values}
        if self.values.get("quantization_config") is not None:
            raise ModelLoadError(
                f"{path}: the weights are quantised already, in a format that is not supported; use the"
                " model's original folder with --quantization int8 or int4, or a GGUF file"
            )

    @property
    def typed(self) -> Metadata:
        """The entries that are there, read with types and limits."""
        return Metadata(self.path, {key: value for key, value in self.values.items() if value is not None})

    def metadata(self, *, name: str) -> Metadata:
        """Everything under GGUF's keys.

        Args:
            name: what to call the model.

        Raises:
            ModelLoadError: an entry is missing or out of range.
        """
        architecture = self.family.architecture
        self._check_activation()
        entries = {**self._common(), **self.family.read_more(self)}
        rope = rope_metadata(
            self.values,
            self.path,
            architecture=architecture,
            head_dim=int(entries["attention.key_length"]),  # type: ignore[arg-type]
        )
        values = {f"{architecture}.{key}": value for key, value in entries.items()}
        if rope.get(f"{architecture}.rope.scaling.type") == "yarn":
            read = Metadata(self.path, {**values, **rope})
            values[f"{architecture}.context_length"] = _stretched_context(read, architecture)
        head: Entries = {
            "general.architecture": architecture,
            "general.name": name,
            "octavo.rope_style": "half_split",
        }
        return Metadata(self.path, {**head, **values, **rope})

    def _check_activation(self) -> None:
        is_gemma = self.family.architecture.startswith("gemma")
        key, known = ("hidden_activation", _GELU) if is_gemma else ("hidden_act", _SILU)
        if (found := self.values.get(key)) not in (None, *known):
            raise ModelLoadError(f"{self.path}: {key} {quote(found)} is not supported; {known[0]} is")

    def _common(self) -> Entries:
        read = self.typed
        hidden_size, num_heads = read.count("hidden_size"), read.count("num_attention_heads")
        head_dim = read.count("head_dim", default=hidden_size // num_heads)
        return {
            "block_count": read.count("num_hidden_layers"),
            "context_length": read.count("max_position_embeddings", default=2048),
            "embedding_length": hidden_size,
            "feed_forward_length": read.count("intermediate_size"),
            "attention.head_count": num_heads,
            "attention.head_count_kv": read.count("num_key_value_heads", default=num_heads),
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": read.number("rms_norm_eps", default=1e-6),
        }


def _text_model(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], object]:
    """The entries that describe the text model, and its ``model_type``."""
    name, text = document.get("model_type"), document.get("text_config")
    if name not in _AROUND_TEXT or not isinstance(text, Mapping):
        return document, name
    return {**document, **text}, text.get("model_type", name)


def _stretched_context(metadata: Metadata, architecture: str) -> int:
    """With YaRN, files often have the context from before it in max_position_embeddings."""
    scaling = f"{architecture}.rope.scaling"
    factor = metadata.number(f"{scaling}.factor")
    stretched = min(factor * metadata.count(f"{scaling}.original_context_length"), _LONGEST_CONTEXT)
    return max(metadata.count(f"{architecture}.context_length"), int(stretched))


def _refuse(config: Config, *keys: str) -> None:
    """Refuse a configuration in which one of these is true."""
    for key in keys:
        if config.typed.flag(key, default=False):
            raise ModelLoadError(f"{config.path}: {key} is not supported for this model_type")


def _llama(config: Config) -> Entries:
    """Without a window, even if files that were made of Mistral's name one."""
    _refuse(config, "attention_bias", "mlp_bias")
    return {}


def _window(config: Config) -> Entries:
    """One window for all layers."""
    window = config.typed.count("sliding_window", default=0, minimum=0)
    return {"attention.sliding_window": window} if window else {}


def _qwen(config: Config) -> Entries:
    """A window only if it is asked for, and then only in layers from max_window_layers on."""
    read = config.typed
    if read.count("max_window_layers", default=28, minimum=0) < read.count("num_hidden_layers"):
        _refuse(config, "use_sliding_window")
    return {}


def _gemma(config: Config) -> Entries:
    _refuse(config, "use_bidirectional_attention")
    read = config.typed
    scale = read.number("query_pre_attn_scalar", default=256.0) ** -0.5
    # 0 turns off what GGUF files of Gemma 2 have without saying so.
    caps = {key: read.number(key) if key in read.values else 0.0 for key in _SOFT_CAPS}
    window = read.count("sliding_window", default=0, minimum=0)
    return {"attention.sliding_window": window, "attention.scale": scale, **caps, **_layer_kinds(config)}


def _layer_kinds(config: Config) -> Entries:
    """Which layers have a window: a list of names, or the last of so many has none."""
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list):
        for kind in kinds:
            if kind not in (_SLIDING, _FULL):
                raise ModelLoadError(f"{config.path}: layers of kind {quote(kind)} are not supported")
        return {"attention.sliding_window_pattern": np.array([kind == _SLIDING for kind in kinds], bool)}
    key = "sliding_window_pattern"
    return {f"attention.{key}": config.typed.count(key)} if config.values.get(key) else {}


def _smollm3(config: Config) -> Entries:
    _refuse(config, "attention_bias", "mlp_bias", "use_sliding_window")
    layers = config.values.get("no_rope_layers")
    if isinstance(layers, list):  # 1 for a layer that has rope, whatever the name says
        return {"rope.layer_pattern": np.array([bool(flag) for flag in layers], bool)}
    if config.values.get("no_rope_layer_interval"):
        return {"rope.layer_pattern": config.typed.count("no_rope_layer_interval")}
    return {}


def _mixtral(config: Config) -> Entries:
    read = config.typed
    return {
        **_window(config),
        "expert_count": read.count("num_local_experts"),
        "expert_used_count": read.count("num_experts_per_tok"),
        "expert_feed_forward_length": read.count("intermediate_size"),
    }


def _qwen_experts(config: Config) -> Entries:
    _refuse(config, "use_sliding_window")
    read = config.typed
    if read.count("decoder_sparse_step", default=1) != 1 or config.values.get("mlp_only_layers"):
        raise ModelLoadError(
            f"{config.path}: models in which only some layers have experts are not supported"
        )
    return {
        "expert_count": read.count("num_experts" if "num_experts" in read.values else "num_local_experts"),
        "expert_used_count": read.count("num_experts_per_tok"),
        "expert_feed_forward_length": read.count("moe_intermediate_size"),
        "expert_weights_norm": read.flag("norm_topk_prob", default=False),
    }


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": Family("llama", _llama),
        "mistral": Family("llama", _window),
        "mixtral": Family("llama", _mixtral),
        "smollm3": Family("smollm3", _smollm3),
        "qwen2": Family("qwen2", _qwen),
        "qwen3": Family("qwen3", _qwen),
        "qwen3_moe": Family("qwen3moe", _qwen_experts),
        "gemma2": Family("gemma2", _gemma),
        "gemma3": Family("gemma3", _gemma),
        "gemma3_text": Family("gemma3", _gemma),
        "phi3": Family("phi3", _window),
    }
)
"""By ``model_type``."""
