"""`read_spec`: the section of an architecture in a model's metadata, as far as all architectures agree."""

from collections.abc import Callable

from octavo.errors import ModelLoadError
from octavo.kernels.program import RopeStyle
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.rope import read_rope
from octavo.models.spec import ExpertsSpec, LayerSpec, ModelSpec, model_name
from octavo.models.weights import Weights

_LARGEST_HEAD_DIM = 1 << 16
_MOST_LAYERS = 1 << 12
_MOST_EXPERTS = 1 << 10

LayerReader = Callable[[LayerSpec, int], tuple[LayerSpec, ...]]
"""Called with what a layer is by default, and the number of layers."""


def read_spec(
    metadata: Metadata,
    weights: Weights,
    *,
    architecture: str,
    vocab_size: int,
    rope_style: RopeStyle = RopeStyle.HALF_SPLIT,
    read_layers: LayerReader | None = None,
) -> ModelSpec:
    """Read what ``architecture`` has in common with others.

    Args:
        metadata: of the model.
        weights: tensors that change the rope, or tell whether there is a head.
        architecture: prefix of the keys.
        vocab_size: tokens of the vocabulary.
        rope_style: of GGUF files of this architecture.
        read_layers: where layers differ; without it all of them have the same window, if any.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """
    if not metadata.flag(f"{architecture}.attention.causal", default=True):
        raise ModelLoadError(f"{metadata.path}: models without causal attention are not supported")
    hidden_size = metadata.count(f"{architecture}.embedding_length")
    num_heads = metadata.count(f"{architecture}.attention.head_count")
    head_dim = _read_head_dim(metadata, architecture, default=hidden_size // num_heads)
    layer = LayerSpec(
        rope=read_rope(
            metadata,
            weights,
            architecture=architecture,
            style=_rope_style(metadata, default=rope_style),
            head_dim=head_dim,
        ),
        window=metadata.count(f"{architecture}.attention.sliding_window", default=0, minimum=0) or None,
    )
    num_layers = metadata.count(f"{architecture}.block_count", maximum=_MOST_LAYERS)
    return ModelSpec(
        architecture=architecture,
        name=model_name(metadata.text("general.name"), metadata.path),
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=metadata.count(f"{architecture}.feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=_read_kv_heads(metadata, architecture, num_heads),
        head_dim=head_dim,
        context_length=metadata.count(f"{architecture}.context_length"),
        rms_norm_eps=metadata.number(f"{architecture}.attention.layer_norm_rms_epsilon"),
        layers=read_layers(layer, num_layers) if read_layers else (layer,) * num_layers,
        attention_scale=metadata.number(f"{architecture}.attention.scale", default=head_dim**-0.5),
        attention_soft_cap=_read_soft_cap(metadata, f"{architecture}.attn_logit_softcapping"),
        logit_soft_cap=_read_soft_cap(metadata, f"{architecture}.final_logit_softcapping"),
        tied_head="output.weight" not in weights,
    )


def read_experts(metadata: Metadata, architecture: str, *, default_width: int | None = None) -> ExpertsSpec:
    """Read the keys of a mixture of experts.

    Args:
        metadata: of the model.
        architecture: prefix of the keys.
        default_width: of an expert, where the metadata does not say.

    Raises:
        ModelLoadError: a value is missing or out of range.
    """
    num_experts = metadata.count(f"{architecture}.expert_count", maximum=_MOST_EXPERTS)
    return ExpertsSpec(
        num_experts=num_experts,
        top_k=metadata.count(f"{architecture}.expert_used_count", maximum=num_experts),
        intermediate_size=metadata.count(f"{architecture}.expert_feed_forward_length", default=default_width),
        normalized=metadata.flag(f"{architecture}.expert_weights_norm", default=True),
    )


def _read_head_dim(metadata: Metadata, architecture: str, *, default: int) -> int:
    head_dim = metadata.count(
        f"{architecture}.attention.key_length", default=default, maximum=_LARGEST_HEAD_DIM
    )
    value_dim = metadata.count(f"{architecture}.attention.value_length", default=head_dim)
    if value_dim != head_dim:
        raise ModelLoadError(
            f"{metadata.path}: keys of {head_dim} and values of {value_dim} are not supported"
        )
    return head_dim


def _read_kv_heads(metadata: Metadata, architecture: str, num_heads: int) -> int:
    num_kv_heads = metadata.count(f"{architecture}.attention.head_count_kv", default=num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(f"{metadata.path}: {num_heads} heads cannot share {num_kv_heads} K/V heads")
    return num_kv_heads


def _read_soft_cap(metadata: Metadata, key: str) -> float | None:
    value = metadata.values.get(key)
    is_off = isinstance(value, int | float | None) and not value
    return None if is_off else metadata.number(key)


def _rope_style(metadata: Metadata, *, default: RopeStyle) -> RopeStyle:
    name = metadata.text("octavo.rope_style")
    try:
        return default if name is None else RopeStyle(name)
    except ValueError:
        raise ModelLoadError(f"{metadata.path}: the rope style {quote(name)} is not known") from None
