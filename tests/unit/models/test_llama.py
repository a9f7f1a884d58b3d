import numpy as np
import pytest
from gguf_writer import GGML_TYPE_IDS, Tensor

from octavo.errors import ModelLoadError
from octavo.kernels.program import (
    Embed,
    GatedActivation,
    KeepLogitRows,
    Linear,
    Logits,
    PagedAttention,
    RmsNorm,
    RopeAndWriteKV,
    RopeStyle,
)
from octavo.models.loaded import load_model


def floats(*values: float) -> Tensor:
    return Tensor((len(values),), GGML_TYPE_IDS["F32"], np.array(values, "<f4").tobytes())


def test_the_spec_is_what_the_file_says(tiny_llama):
    spec = load_model(tiny_llama(quantization="Q4_0", num_layers=3)).spec
    assert (spec.architecture, spec.name) == ("llama", "tiny Q4_0")
    assert (spec.vocab_size, spec.hidden_size, spec.intermediate_size) == (274, 64, 96)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (3, 6, 2, 16)
    assert (spec.context_length, spec.rms_norm_eps) == (512, np.float32(1e-5))
    assert spec.layers[0].window is None
    assert spec.tied_head


@pytest.mark.model
def test_the_spec_of_the_default_model(default_model_path):
    model = load_model(default_model_path)
    spec = model.spec
    assert (spec.vocab_size, spec.hidden_size, spec.intermediate_size) == (49152, 576, 1536)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (30, 9, 3, 64)
    assert (spec.context_length, spec.tied_head) == (8192, True)
    assert spec.layers[0].rope.frequencies[1] == pytest.approx(100_000 ** (-2 / 64))
    assert model.num_parameters == 134_515_008


def test_the_program_is_a_transformer(tiny_llama):
    model = load_model(tiny_llama(quantization="Q4_0", num_layers=2))
    cached = [RmsNorm, Linear, RopeAndWriteKV]
    rest = [PagedAttention, Linear, RmsNorm, Linear, GatedActivation, Linear]
    cut = [KeepLogitRows, KeepLogitRows]  # once the last layer has everyone's K and V
    ops = model.program.ops
    assert [type(op) for op in ops] == [Embed, *cached, *rest, *cached, *cut, *rest, RmsNorm, Logits]
    residual = ops[0].out
    for op in ops:
        if isinstance(op, Linear) and op.accumulate:
            assert op.out == residual
        if isinstance(op, RmsNorm):
            assert op.x == residual
    assert [op.layer for op in ops if isinstance(op, PagedAttention)] == [0, 1]
    assert all(op.scale == 0.25 for op in ops if isinstance(op, PagedAttention))
    assert model.program.head.weight is ops[0].weight  # tied: one object


def test_parts_of_a_linear_are_in_order(tiny_llama):
    ops = load_model(tiny_llama(num_layers=1)).program.ops
    names = [[part.name.removesuffix(".weight") for part in op.parts] for op in ops if isinstance(op, Linear)]
    assert names == [
        ["blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"],
        ["blk.0.attn_output"],
        ["blk.0.ffn_gate", "blk.0.ffn_up"],
        ["blk.0.ffn_down"],
    ]


def test_a_head_of_its_own(tiny_llama):
    model = load_model(tiny_llama(tied_head=False))
    assert not model.spec.tied_head
    assert model.program.head.weight.name == "output.weight"


def test_a_window_reaches_the_attention(tiny_llama):
    model = load_model(tiny_llama(metadata={"llama.attention.sliding_window": 100}))
    assert model.spec.layers[0].window == 100
    assert all(op.window == 100 for op in model.program.ops if isinstance(op, PagedAttention))


def test_head_size_and_kv_heads_have_defaults(tiny_llama):
    missing = (
        "attention.key_length",
        "attention.value_length",
        "attention.head_count_kv",
        "rope.dimension_count",
    )
    path = tiny_llama(num_heads=4, num_kv_heads=4, metadata={f"llama.{key}": None for key in missing})
    spec = load_model(path).spec
    assert (spec.head_dim, spec.num_kv_heads, spec.layers[0].rope.rotary_dim) == (16, 4, 16)


def frequencies(path) -> list[float]:
    rope = load_model(path).spec.layers[0].rope
    assert rope.style is RopeStyle.INTERLEAVED
    return list(rope.frequencies)


PLAIN = [10_000.0 ** (-2 * i / 16) for i in range(8)]


def test_rope_turns_by_powers_of_the_base(tiny_llama):
    assert frequencies(tiny_llama()) == pytest.approx(PLAIN, rel=1e-14)
    assert len(frequencies(tiny_llama(metadata={"llama.rope.dimension_count": 8}))) == 4


@pytest.mark.parametrize(
    ("changes", "divisor"),
    [
        ({"scaling.type": "linear", "scaling.factor": 4.0}, 4),
        ({"scaling.factor": 4.0}, 4),
        ({"scale_linear": 2.0}, 2),
        ({"scaling.type": "none", "scaling.factor": 4.0}, 1),
    ],
)
def test_rope_is_stretched_linearly(tiny_llama, changes, divisor):
    path = tiny_llama(metadata={f"llama.rope.{key}": value for key, value in changes.items()})
    assert frequencies(path) == pytest.approx([f / divisor for f in PLAIN], rel=1e-14)


def test_rope_factors_of_a_file_divide_the_frequencies(tiny_llama):
    factors = [1.0, 1, 1, 2, 4, 8, 8, 8]
    path = tiny_llama(tensors={"rope_freqs.weight": floats(*factors)})
    assert frequencies(path) == pytest.approx([f / d for f, d in zip(PLAIN, factors, strict=True)], rel=1e-14)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' is not supported; supported: 'llama'"),
        ({"general.architecture": None}, "architecture None is not supported"),
        ({"split.count": np.uint16(3)}, "one of 3 parts of a model, which must be named"),
        ({"llama.block_count": None}, "lacks 'llama.block_count'"),
        ({"llama.block_count": 3}, "no tensor 'blk.2.attn_norm.weight'"),
        ({"llama.block_count": 1}, r"tensor 'blk.1.attn_norm.weight' \(and 8 more\) belongs to a variant"),
        (
            {"llama.embedding_length": 32},
            r"'token_embd.weight' must have shape \(274, 32\), found \(274, 64\)",
        ),
        ({"llama.feed_forward_length": 64}, "'blk.0.ffn_gate.weight' must have shape"),
        ({"llama.attention.head_count_kv": 4}, "6 heads cannot share 4 K/V heads"),
        ({"llama.attention.head_count_kv": 3}, "'blk.0.attn_k.weight' must have shape"),
        ({"llama.attention.value_length": 8}, "keys of 16 and values of 8 are not supported"),
        ({"llama.attention.key_length": 1 << 17}, "key_length' must be an integer from 1 to 65,536"),
        ({"llama.rope.dimension_count": 15}, "must be even and at most the head size 16, found 15"),
        ({"llama.rope.dimension_count": 18}, "must be even and at most the head size 16, found 18"),
        ({"llama.rope.scaling.type": "su"}, "rope scaling 'su' is not supported; 'none', 'linear', 'llama3'"),
        (
            {"llama.rope.scaling.factor": np.float64(1e-300), "llama.rope.freq_base": np.float64(1e-300)},
            "frequencies that are not finite",
        ),
        ({"llama.expert_count": 8}, "lacks 'llama.expert_used_count'"),
        ({"llama.attention.causal": False}, "without causal attention"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "must be a positive number, found 0.0"),
        ({"tokenizer.ggml.tokens": ["a"] * 9, "tokenizer.ggml.token_type": None}, "unknown token"),
    ],
)
def test_what_a_file_asks_for_and_cannot_have_is_one_clear_error(tiny_llama, changes, expected):
    path = tiny_llama(metadata=changes)
    with pytest.raises(ModelLoadError, match=expected) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"blk.0.attn_q.bias": floats(1)}, "tensor 'blk.0.attn_q.bias' belongs to a variant"),
        ({"output_norm.weight": Tensor((64,), 1, bytes(128))}, "'output_norm.weight' must be F32, found F16"),
        (
            {"output_norm.weight": Tensor((256,), 16, bytes(84))},
            "'output_norm.weight' has type IQ2_XXS; supported",
        ),
        ({"rope_freqs.weight": floats(1, 1)}, "'rope_freqs.weight' must have shape"),
        ({"rope_freqs.weight": floats(0, *[1] * 7)}, "frequencies that are not finite"),
        ({"rope_freqs.weight": floats(float("nan"), *[1] * 7)}, "frequencies that are not finite"),
        ({"rope_freqs.weight": floats(-1, *[1] * 7)}, "frequencies that are not finite"),
    ],
)
def test_tensors_that_do_not_fit_are_one_clear_error(tiny_llama, tensors, expected):
    with pytest.raises(ModelLoadError, match=expected):
        load_model(tiny_llama(tensors=tensors))


@pytest.mark.parametrize("quantization", list(GGML_TYPE_IDS))
def test_every_quantisation_loads(tiny_llama, quantization):
    model = load_model(tiny_llama(quantization=quantization, tied_head=False))
    matrices = [op for op in model.program.ops if isinstance(op, Linear)]
    assert {part.quantization for op in matrices for part in op.parts} == {quantization}
    assert model.weight_bytes < model.path.stat().st_size
