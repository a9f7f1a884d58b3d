"""What a ``config.json`` means where it says nothing: transformers' own defaults, by ``model_type``.

Files leave them out: the text of Gemma 3 4B has no ``num_attention_heads``, SmolLM3 has no
``tie_word_embeddings``. An entry that is ``null`` in the file is not left out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_GEMMA: Mapping[str, Any] = MappingProxyType(
    {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    }
)
_GEMMA_3: Mapping[str, Any] = MappingProxyType(
    {
        **_GEMMA,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
    }
)
_MISTRAL: Mapping[str, Any] = MappingProxyType(
    {"num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096}
)
_QWEN: Mapping[str, Any] = MappingProxyType({"num_key_value_heads": 32, "max_position_embeddings": 32_768})

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "llama": {"max_position_embeddings": 2048},
        "mistral": _MISTRAL,
        "mixtral": {
            **_MISTRAL,
            "sliding_window": None,
            "rope_theta": 1_000_000.0,
            "rms_norm_eps": 1e-5,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        "smollm3": {
            "num_key_value_heads": 4,
            "max_position_embeddings": 32_768,
            "rope_theta": 2_000_000.0,
            "tie_word_embeddings": True,
        },
        "qwen2": _QWEN,
        "qwen3": {**_QWEN, "head_dim": 128},
        "qwen3_moe": {
            **_QWEN,
            "num_key_value_heads": 4,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
        "gemma2": {
            **_GEMMA,
            "max_position_embeddings": 8192,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        "gemma3": _GEMMA_3,
        "gemma3_text": _GEMMA_3,
        "phi3": {
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        },
    }
)
"""Those that differ between families; what all have in common is in `octavo.models.huggingface_config`."""
