"""The llama architecture: Llama 2 and 3, Mistral, SmolLM2, and every file that GGUF calls "llama"."""

from typing import NamedTuple

from octavo.errors import ModelLoadError
from octavo.kernels.program import Program, RopeStyle
from octavo.kernels.weight import Weight
from octavo.models.gguf_metadata import Metadata
from octavo.models.rope import read_rope
from octavo.models.spec import ModelSpec, model_name
from octavo.models.weights import Weights

_LARGEST_HEAD_DIM = 1 << 16


def build_program(spec: ModelSpec, weights: Weights) -> Program:
    """The model as a program.

    Raises:
        ModelLoadError: a tensor is missing, or of another shape than ``spec`` says.
    """
    p = Program()
    embedding = weights.matrix("token_embd.weight", spec.vocab_size, spec.hidden_size)
    x = p.embed(embedding)
    for layer in range(spec.num_layers):
        w = _layer_weights(spec, weights, layer)
        h = p.rms_norm(x, w.attention_norm, eps=spec.rms_norm_eps)
        q = p.rope_and_write_kv(
            p.linear(h, w.q, w.k, w.v),
            layer=layer,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            rope=spec.rope,
        )
        attended = p.paged_attention(
            q,
            layer=layer,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            scale=spec.head_dim**-0.5,
            window=spec.sliding_window,
        )
        x = p.linear(attended, w.o, add_to=x)
        h = p.rms_norm(x, w.mlp_norm, eps=spec.rms_norm_eps)
        x = p.linear(p.gated_activation(p.linear(h, w.gate, w.up)), w.down, add_to=x)
    x = p.rms_norm(x, weights.vector("output_norm.weight", spec.hidden_size), eps=spec.rms_norm_eps)
    head = weights.matrix("output.weight", *embedding.shape) if not spec.tied_head else embedding
    p.logits(x, head)
    return p


class _LayerWeights(NamedTuple):
    attention_norm: Weight  # [hidden]
    q: Weight  # [num_heads * head_dim, hidden]
    k: Weight  # [num_kv_heads * head_dim, hidden]
    v: Weight  # [num_kv_heads * head_dim, hidden]
    o: Weight  # [hidden, num_heads * head_dim]
    mlp_norm: Weight  # [hidden]
    gate: Weight  # [intermediate, hidden]
    up: Weight  # [intermediate, hidden]
    down: Weight  # [hidden, intermediate]


def _layer_weights(spec: ModelSpec, weights: Weights, layer: int) -> _LayerWeights:
    hidden, intermediate = spec.hidden_size, spec.intermediate_size
    q_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    prefix = f"blk.{layer}"
    return _LayerWeights(
        attention_norm=weights.vector(f"{prefix}.attn_norm.weight", hidden),
        q=weights.matrix(f"{prefix}.attn_q.weight", q_width, hidden),
        k=weights.matrix(f"{prefix}.attn_k.weight", kv_width, hidden),
        v=weights.matrix(f"{prefix}.attn_v.weight", kv_width, hidden),
        o=weights.matrix(f"{prefix}.attn_output.weight", hidden, q_width),
        mlp_norm=weights.vector(f"{prefix}.ffn_norm.weight", hidden),
        gate=weights.matrix(f"{prefix}.ffn_gate.weight", intermediate, hidden),
        up=weights.matrix(f"{prefix}.ffn_up.weight", intermediate, hidden),
        down=weights.matrix(f"{prefix}.ffn_down.weight", hidden, intermediate),
    )


def read_spec(metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
    """Read the ``llama`` section of a file.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """
    _refuse_variants(metadata)
    hidden_size = metadata.count("llama.embedding_length")
    num_heads = metadata.count("llama.attention.head_count")
    num_kv_heads = metadata.count("llama.attention.head_count_kv", default=num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(f"{metadata.path}: {num_heads} heads cannot share {num_kv_heads} K/V heads")
    head_dim = metadata.count(
        "llama.attention.key_length", default=hidden_size // num_heads, maximum=_LARGEST_HEAD_DIM
    )
    value_dim = metadata.count("llama.attention.value_length", default=head_dim)
    if value_dim != head_dim:
        raise ModelLoadError(
            f"{metadata.path}: keys of {head_dim} and values of {value_dim} are not supported"
        )
    return ModelSpec(
        architecture="llama",
        name=model_name(metadata.text("general.name"), metadata.path),
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=metadata.count("llama.feed_forward_length"),
        num_layers=metadata.count("llama.block_count"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        context_length=metadata.count("llama.context_length"),
        rms_norm_eps=metadata.number("llama.attention.layer_norm_rms_epsilon"),
        rope=read_rope(
            metadata, weights, architecture="llama", style=RopeStyle.INTERLEAVED, head_dim=head_dim
        ),
        sliding_window=metadata.count("llama.attention.sliding_window", default=0, minimum=0) or None,
        tied_head="output.weight" not in weights,
    )


def _refuse_variants(metadata: Metadata) -> None:
    if metadata.count("llama.expert_count", default=0, minimum=0):
        raise ModelLoadError(
            f"{metadata.path}: mixture-of-experts models (llama.expert_count) are not supported"
        )
    if not metadata.flag("llama.attention.causal", default=True):
        raise ModelLoadError(f"{metadata.path}: models without causal attention are not supported")
