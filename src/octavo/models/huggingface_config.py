"""``config.json`` of a Hugging Face folder as metadata under GGUF's keys (see `octavo.models.source`)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata, MetadataValue
from octavo.models.hf_rope import rope_metadata
from octavo.models.quoting import quote

Entries = dict[str, MetadataValue]


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
        text = document.get("text_config")
        # What a model of text and images says of its text is one level down.
        self.values = {**document, **text} if isinstance(text, Mapping) else document
        self.path = path
        name = self.values.get("model_type")
        family = FAMILIES.get(name) if isinstance(name, str) else None
        if family is None:
            raise ModelLoadError(
                f"{path}: model_type {quote(name)} is not supported; supported: {', '.join(FAMILIES)}"
            )
        self.family = family
        if document.get("quantization_config") is not None:
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
        entries = {**self._common(), **self.family.read_more(self)}
        rope = rope_metadata(
            self.values,
            self.path,
            architecture=architecture,
            head_dim=int(entries["attention.key_length"]),  # type: ignore[arg-type]
        )
        values = {f"{architecture}.{key}": value for key, value in entries.items()}
        head: Entries = {
            "general.architecture": architecture,
            "general.name": name,
            "octavo.rope_style": "half_split",
        }
        return Metadata(self.path, {**head, **values, **rope})

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


def _refuse_biases(config: Config) -> Entries:
    for key in ("attention_bias", "mlp_bias"):
        if config.typed.flag(key, default=False):
            raise ModelLoadError(f"{config.path}: {key} is not supported for this model_type")
    return _window(config)


def _window(config: Config) -> Entries:
    """One window for all layers."""
    read = config.typed
    if not read.flag("use_sliding_window", default=True):
        return {}
    window = read.count("sliding_window", default=0, minimum=0)
    return {"attention.sliding_window": window} if window else {}


def _qwen_window(config: Config) -> Entries:
    """Off unless asked for; then only layers from max_window_layers on have it."""
    if not config.typed.flag("use_sliding_window", default=False):
        return {}
    raise ModelLoadError(f"{config.path}: use_sliding_window is not supported for this model_type")


def _gemma2(config: Config) -> Entries:
    read = config.typed
    scale = read.number("query_pre_attn_scalar", default=256.0) ** -0.5
    entries: Entries = {**_window(config), "attention.scale": scale, **_layer_kinds(config)}
    for key, ours in (
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ):
        if key in read.values:
            entries[ours] = read.number(key)
    return entries


def _layer_kinds(config: Config) -> Entries:
    """Which layers have a window: a list of names, or the last of so many has none."""
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list):
        flags = np.array([kind == "sliding_attention" for kind in kinds], bool)
        return {"attention.sliding_window_pattern": flags}
    key = "sliding_window_pattern"
    return {f"attention.{key}": config.typed.count(key)} if config.values.get(key) else {}


def _smollm3(config: Config) -> Entries:
    entries = _refuse_biases(config) if config.values.get("use_sliding_window") else {}
    layers = config.values.get("no_rope_layers")
    if isinstance(layers, list):  # 1 for a layer that has rope, whatever the name says
        entries["rope.layer_pattern"] = np.array([bool(flag) for flag in layers], bool)
    elif config.values.get("no_rope_layer_interval"):
        entries["rope.layer_pattern"] = config.typed.count("no_rope_layer_interval")
    return entries


def _mixtral(config: Config) -> Entries:
    read = config.typed
    return {
        **_window(config),
        "expert_count": read.count("num_local_experts", default=8),
        "expert_used_count": read.count("num_experts_per_tok", default=2),
        "expert_feed_forward_length": read.count("intermediate_size"),
    }


def _qwen_experts(config: Config) -> Entries:
    read = config.typed
    if read.count("decoder_sparse_step", default=1) != 1 or config.values.get("mlp_only_layers"):
        raise ModelLoadError(
            f"{config.path}: models in which only some layers have experts are not supported"
        )
    return {
        **_qwen_window(config),
        "expert_count": read.count("num_experts" if "num_experts" in read.values else "num_local_experts"),
        "expert_used_count": read.count("num_experts_per_tok"),
        "expert_feed_forward_length": read.count("moe_intermediate_size"),
        "expert_weights_norm": read.flag("norm_topk_prob", default=False),
    }


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": Family("llama", _refuse_biases),
        "mistral": Family("llama", _window),
        "mixtral": Family("llama", _mixtral),
        "smollm3": Family("smollm3", _smollm3),
        "qwen2": Family("qwen2", _qwen_window),
        "qwen3": Family("qwen3", _qwen_window),
        "qwen3_moe": Family("qwen3moe", _qwen_experts),
        "gemma2": Family("gemma2", _gemma2),
        "gemma3": Family("gemma3", _gemma2),
        "gemma3_text": Family("gemma3", _gemma2),
        "phi3": Family("phi3", _window),
    }
)
"""By ``model_type``."""
