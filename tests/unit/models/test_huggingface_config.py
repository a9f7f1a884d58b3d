"""What is read of ``config.json``: entries as published models have them, and what some of them leave out."""

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ModelLoadError
from octavo.kernels.program import NO_ROPE
from octavo.models.gguf_metadata import Metadata
from octavo.models.huggingface_config import FAMILIES, Config
from octavo.models.huggingface_defaults import DEFAULTS
from octavo.models.registry import ARCHITECTURES
from octavo.models.spec import ModelSpec
from octavo.models.weights import Weights

PATH = Path("config.json")

LLAMA_3_2_1B = {
    "attention_bias": False, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
    "mlp_bias": False, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3",
    },
    "rope_theta": 500000.0, "tie_word_embeddings": True, "use_cache": True, "vocab_size": 128256,
}  # fmt: skip
MISTRAL_7B_V0_3 = {
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
    "vocab_size": 32768,
}  # fmt: skip
MIXTRAL_8X7B = {
    **MISTRAL_7B_V0_3, "model_type": "mixtral", "num_experts_per_tok": 2, "num_local_experts": 8,
    "output_router_logits": False, "router_aux_loss_coef": 0.02, "vocab_size": 32000,
}  # fmt: skip
QWEN_2_5_0_5B = {
    "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768,
    "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN_3_0_6B = {
    "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
    "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
    "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN_3_30B_A3B = {
    **QWEN_3_0_6B, "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 6144,
    "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "router_aux_loss_coef": 0.001,
    "tie_word_embeddings": False,
}  # fmt: skip
GEMMA_2_2B = {
    "attention_bias": False, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "intermediate_size": 9216,
    "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000,
}  # fmt: skip
GEMMA_3_1B = {
    "attention_bias": False, "attn_logit_softcapping": None, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": None, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
    "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
    "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512,
    "sliding_window_pattern": 6, "vocab_size": 262144,
}  # fmt: skip
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eos_token_id": [1, 106],
    "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model", "num_hidden_layers": 27},
}  # fmt: skip
PHI_3_MINI_4K = {
    "attention_bias": False, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
    "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": None,
    "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": False, "vocab_size": 32064,
}  # fmt: skip
PHI_3_MINI_128K = {
    **PHI_3_MINI_4K, "max_position_embeddings": 131072, "sliding_window": 262144,
    "rope_scaling": {"long_factor": [1.5] * 48, "short_factor": [1.05] * 48, "type": "su"},
}  # fmt: skip
SMOLLM_3_3B = {
    "attention_bias": False, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 11008, "layer_types": ["full_attention"] * 36, "max_position_embeddings": 65536,
    "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3", "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16, "num_hidden_layers": 36,
    "num_key_value_heads": 4, "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 5000000.0, "sliding_window": None, "use_sliding_window": False, "vocab_size": 128256,
}  # fmt: skip


class NoTensors:
    """A source that has only metadata."""

    path = PATH
    tensors: dict[str, Any] = {}  # noqa: RUF012
    metadata = Metadata(PATH, {})


def spec_of(document: dict[str, Any], **changes: object) -> ModelSpec:
    metadata = Config({**document, **changes}, PATH).metadata(name="m")
    read_spec = ARCHITECTURES[str(metadata.text("general.architecture"))].read_spec
    return read_spec(metadata, Weights(NoTensors()), vocab_size=99)


def test_llama_3_2():
    spec = spec_of(LLAMA_3_2_1B)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (32, 8, 64)
    assert (spec.context_length, spec.rms_norm_eps) == (131_072, 1e-5)
    slowest = spec.layers[0].rope.frequencies[-1]
    assert slowest == pytest.approx(500_000 ** (-62 / 64) / 32)


def test_a_window_in_a_llama_is_ignored_as_transformers_does():
    assert spec_of(LLAMA_3_2_1B, sliding_window=4096).layers[0].window is None


def test_mistral_and_mixtral():
    mistral, mixtral = spec_of(MISTRAL_7B_V0_3), spec_of(MIXTRAL_8X7B)
    assert (mistral.head_dim, mistral.layers[0].window, mistral.experts) == (128, None, None)
    assert spec_of(MISTRAL_7B_V0_3, head_dim=None, sliding_window=4096).layers[31].window == 4096
    assert mixtral.experts is not None
    assert (mixtral.experts.num_experts, mixtral.experts.top_k, mixtral.experts.normalized) == (8, 2, True)
    without = {key: value for key, value in MISTRAL_7B_V0_3.items() if key != "sliding_window"}
    assert spec_of(without).layers[0].window == 4096


@pytest.mark.parametrize("document", [QWEN_2_5_0_5B, QWEN_3_0_6B, QWEN_3_30B_A3B])
def test_qwens_window_is_off(document):
    assert {layer.window for layer in spec_of(document).layers} == {None}


def test_qwens_window_of_no_layer_is_off_and_any_other_is_refused():
    assert spec_of(QWEN_3_0_6B, use_sliding_window=True, sliding_window=64).layers[27].window is None
    for document in (QWEN_2_5_0_5B, QWEN_3_30B_A3B):
        with pytest.raises(ModelLoadError, match="use_sliding_window is not supported"):
            spec_of(document, use_sliding_window=True)


def test_qwens_experts():
    experts = spec_of(QWEN_3_30B_A3B).experts
    assert experts is not None
    assert (experts.num_experts, experts.top_k, experts.intermediate_size) == (128, 8, 768)
    with pytest.raises(ModelLoadError, match="only some layers have experts"):
        spec_of(QWEN_3_30B_A3B, mlp_only_layers=[0])


def test_gemma_2():
    spec = spec_of(GEMMA_2_2B)
    assert (spec.attention_soft_cap, spec.logit_soft_cap, spec.attention_scale) == (50, 30, 1 / 16)
    assert [layer.window for layer in spec.layers[:3]] == [4096, None, 4096]
    without = spec_of(GEMMA_2_2B, attn_logit_softcapping=None, sliding_window=None)
    assert (without.attention_soft_cap, without.layers[0].window) == (None, None)
    left_out = {key: value for key, value in GEMMA_2_2B.items() if not key.endswith("softcapping")}
    assert spec_of(left_out).attention_soft_cap == 50


def test_gemma_3_text():
    spec = spec_of(GEMMA_3_1B)
    assert [layer.window for layer in spec.layers[:7]] == [512] * 5 + [None, 512]
    assert (spec.attention_soft_cap, spec.logit_soft_cap) == (None, None)
    newer = spec_of(GEMMA_3_1B, sliding_window_pattern=None, _sliding_window_pattern=6)
    assert newer.layers == spec.layers


def test_the_text_of_gemma_3_with_images_says_little_of_itself():
    spec = spec_of(GEMMA_3_4B)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (8, 4, 256)
    assert (spec.num_layers, spec.context_length, spec.attention_scale) == (34, 131_072, 1 / 16)
    windowed, everywhere = spec.layers[0], spec.layers[5]
    assert (windowed.window, everywhere.window) == (1024, None)
    assert windowed.rope.frequencies[1] == pytest.approx(10_000 ** (-2 / 256))
    assert everywhere.rope.frequencies[1] == pytest.approx(1e6 ** (-2 / 256) / 8)


def test_phi_3():
    short, long = spec_of(PHI_3_MINI_4K), spec_of(PHI_3_MINI_128K)
    assert (short.layers[0].window, short.head_dim, short.layers[0].rope.magnitude) == (2047, 96, 1)
    assert long.layers[0].rope.frequencies[0] == pytest.approx(1 / 1.5)
    assert long.layers[0].rope.magnitude == pytest.approx(1.190238, rel=1e-6)


def test_smollm_3():
    spec = spec_of(SMOLLM_3_3B)
    assert [layer.rope == NO_ROPE for layer in spec.layers[:5]] == [False, False, False, True, False]
    left_out = {key: value for key, value in SMOLLM_3_3B.items() if not key.startswith("no_rope")}
    assert spec_of(left_out).layers == spec.layers
    with pytest.raises(ModelLoadError, match="use_sliding_window is not supported"):
        spec_of(SMOLLM_3_3B, use_sliding_window=True, sliding_window=64)


@pytest.mark.parametrize("document", [GEMMA_2_2B, GEMMA_3_1B, GEMMA_3_4B, SMOLLM_3_3B])
def test_heads_are_tied_where_files_leave_out_that_they_are(document):
    assert "tie_word_embeddings" not in document
    assert Config(document, PATH).typed.flag("tie_word_embeddings", default=False)


def test_yarn_stretches_the_context_that_the_file_has():
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    assert spec_of(QWEN_2_5_0_5B, rope_scaling=yarn).context_length == 131_072
    assert (
        spec_of(QWEN_2_5_0_5B, rope_scaling=yarn, max_position_embeddings=262_144).context_length == 262_144
    )
    assert spec_of(QWEN_2_5_0_5B, rope_scaling={**yarn, "factor": 1e308}).context_length == 1 << 24


@pytest.mark.parametrize(
    ("document", "changes", "problem"),
    [
        (LLAMA_3_2_1B, {"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; silu is"),
        (LLAMA_3_2_1B, {"attention_bias": True}, "attention_bias is not supported"),
        (LLAMA_3_2_1B, {"mlp_bias": True}, "mlp_bias is not supported"),
        (SMOLLM_3_3B, {"attention_bias": True}, "attention_bias is not supported"),
        (GEMMA_3_1B, {"hidden_activation": "relu"}, "hidden_activation 'relu' is not supported; gelu_"),
        (GEMMA_3_1B, {"use_bidirectional_attention": True}, "use_bidirectional_attention is not supported"),
        (GEMMA_3_1B, {"layer_types": ["chunked_attention"] * 26}, "layers of kind 'chunked_attention'"),
        (GEMMA_3_1B, {"layer_types": ["full_attention"] * 25}, "must be an array of 26 numbers"),
        (GEMMA_3_4B, {"model_type": "paligemma"}, "model_type 'paligemma' is not supported"),
        (QWEN_2_5_0_5B, {"rope_theta": 10**400}, "'rope_theta' must be a positive number"),
        (QWEN_2_5_0_5B, {"rms_norm_eps": True}, "'rms_norm_eps' must be a positive number"),
        (PHI_3_MINI_128K, {"rope_scaling": {"type": "su", "short_factor": [10**400]}}, "positive numbers"),
        (QWEN_2_5_0_5B, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        (QWEN_2_5_0_5B, {"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, "rope type 'mrope'"),
    ],
)  # fmt: skip
def test_what_would_be_computed_otherwise_is_refused(document, changes, problem):
    with pytest.raises(ModelLoadError, match=problem):
        spec_of(document, **changes)


def test_every_family_has_its_defaults():
    assert FAMILIES.keys() == DEFAULTS.keys()
