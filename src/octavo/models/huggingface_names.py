"""GGUF's names of the tensors in a Hugging Face folder."""

import re
from collections.abc import Mapping
from types import MappingProxyType

_GLOBAL: Mapping[str, str] = MappingProxyType(
    {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
)
_IN_A_LAYER: Mapping[str, str] = MappingProxyType(
    {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "mlp.gate": "ffn_gate_inp",
        "block_sparse_moe.gate": "ffn_gate_inp",
    }
)
# Gemma has norms behind attention and MLP, too, and so other uses for the same names.
_IN_A_GEMMA_LAYER: Mapping[str, str] = MappingProxyType(
    {
        **_IN_A_LAYER,
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
)
_LAYER = re.compile(r"model\.layers\.(\d{1,4})\.(.+)\.(weight|bias)")
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d{1,4})\.(gate_proj|up_proj|down_proj|w1|w2|w3)")
_EXPERT_ROLES: Mapping[str, str] = MappingProxyType(
    {
        "gate_proj": "ffn_gate",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
        # What Mixtral calls them.
        "w1": "ffn_gate",
        "w2": "ffn_down",
        "w3": "ffn_up",
    }
)
_WRAPPERS = ("model.language_model.model.", "language_model.model.", "model.language_model.")
_NOT_TEXT = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


def gguf_name(name: str, architecture: str) -> str | None:
    """What GGUF calls a tensor of a folder; ``None`` if it is no part of the text model.

    A name that nobody knows is kept, so that it is refused as a part of a model that is not supported.
    """
    if name.startswith(_NOT_TEXT) or name.endswith("rotary_emb.inv_freq"):
        return None
    inner = _without_wrapper(name)
    if inner in _GLOBAL:
        return _GLOBAL[inner]
    match = _LAYER.fullmatch(inner)
    if match is None:
        return name
    layer, part, kind = match.groups()
    if expert := _EXPERT.fullmatch(part):
        return f"blk.{layer}.{_EXPERT_ROLES[expert[2]]}.{expert[1]}.{kind}"
    roles = _IN_A_GEMMA_LAYER if architecture.startswith("gemma") else _IN_A_LAYER
    return f"blk.{layer}.{roles[part]}.{kind}" if part in roles else name


def _without_wrapper(name: str) -> str:
    """The name without what models of text and images put in front."""
    for wrapper in _WRAPPERS:
        if name.startswith(wrapper):
            return f"model.{name.removeprefix(wrapper)}"
    return name.removeprefix("language_model.") if name.startswith("language_model.lm_head") else name
