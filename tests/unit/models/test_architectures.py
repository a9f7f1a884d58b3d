"""What the architectures read from their metadata; their logits are in tests/oracle/test_architectures.py."""

from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ModelLoadError
from octavo.kernels.program import NO_ROPE, RopeStyle
from octavo.kernels.weight import Quantization, Weight
from octavo.models.gguf_metadata import Metadata
from octavo.models.layer_pattern import read_layer_pattern
from octavo.models.registry import ARCHITECTURES
from octavo.models.spec import ModelSpec
from octavo.models.weights import Weights, split_rows

PATH = Path("model.gguf")
NUMBERS = {
    "context_length": 4096,
    "embedding_length": 64,
    "block_count": 12,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-6,
}


class EmptySource:
    """A model without tensors."""

    def __init__(self) -> None:
        self.path = PATH
        self.metadata = Metadata(PATH, {})
        self.tensors: dict[str, Weight] = {}

    def weight(self, name: str) -> Weight:
        raise AssertionError(name)

    def fingerprint(self) -> bytes:
        return b""


def spec_of(architecture: str, **changes: object) -> ModelSpec:
    values = {**NUMBERS, **{key.replace("__", "."): value for key, value in changes.items()}}
    metadata = Metadata(PATH, {f"{architecture}.{key}": value for key, value in values.items()})
    return ARCHITECTURES[architecture].read_spec(metadata, Weights(EmptySource()), vocab_size=99)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3"])
def test_gemmas_layers_have_windows_but_each_last_of_a_period(architecture):
    period = {"gemma2": 2, "gemma3": 6}[architecture]
    layers = spec_of(architecture, attention__sliding_window=512).layers
    assert [layer.window for layer in layers] == ([512] * (period - 1) + [None]) * (12 // period)


def test_gemma_3_has_a_rope_of_its_own_for_windows():
    layers = spec_of("gemma3", attention__sliding_window=512, rope__freq_base=1e6).layers
    assert layers[0].rope.frequencies[1] == pytest.approx(10_000 ** (-2 / 32))
    assert layers[5].rope.frequencies[1] == pytest.approx(1e6 ** (-2 / 32))
    scaled = spec_of("gemma3", attention__sliding_window=512, rope__scaling__factor=8.0).layers
    assert scaled[0].rope.frequencies[0] == 1
    assert scaled[5].rope.frequencies[0] == 1 / 8


@pytest.mark.parametrize(("architecture", "num_layers"), [("gemma2", 46), ("gemma3", 62)])
def test_gemmas_largest_size_scales_queries_by_hidden_size_over_heads(architecture, num_layers):
    assert spec_of(architecture).attention_scale == pytest.approx(32**-0.5)
    assert spec_of(architecture, block_count=num_layers).attention_scale == pytest.approx(16**-0.5)
    given = spec_of(architecture, block_count=num_layers, attention__scale=0.5)
    assert given.attention_scale == 0.5


def test_soft_caps_are_read():
    spec = spec_of("gemma2", attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    assert (spec.attention_soft_cap, spec.logit_soft_cap) == (50, 30)
    off = spec_of("gemma2", attn_logit_softcapping=0.0, final_logit_softcapping=0.0)
    assert (off.attention_soft_cap, off.logit_soft_cap) == (None, None)
    assert spec_of("gemma3").attention_soft_cap is None


def test_the_first_files_of_gemma_2_say_neither_caps_nor_window():
    spec = spec_of("gemma2")
    assert (spec.attention_soft_cap, spec.logit_soft_cap, spec.layers[0].window) == (50, 30, 4096)


def test_every_fourth_layer_of_smollm_3_knows_nothing_of_positions():
    layers = spec_of("smollm3").layers
    assert [layer.rope == NO_ROPE for layer in layers] == [False, False, False, True] * 3


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rope_styles_are_those_of_gguf_unless_the_source_has_another(architecture):
    experts = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
    expected = RopeStyle.INTERLEAVED if architecture in ("llama", "smollm3") else RopeStyle.HALF_SPLIT
    assert spec_of(architecture, **experts).layers[0].rope.style is expected


def test_an_unknown_rope_style_is_refused():
    values = {f"llama.{key}": value for key, value in NUMBERS.items()} | {"octavo.rope_style": "spiral"}
    with pytest.raises(ModelLoadError, match="the rope style 'spiral' is not known"):
        ARCHITECTURES["llama"].read_spec(Metadata(PATH, values), Weights(EmptySource()), vocab_size=9)


def test_experts_are_read():
    spec = spec_of(
        "qwen3moe",
        expert_count=8,
        expert_used_count=2,
        expert_feed_forward_length=32,
        expert_weights_norm=False,
    )
    assert spec.experts is not None
    assert (spec.experts.num_experts, spec.experts.top_k, spec.experts.intermediate_size) == (8, 2, 32)
    assert not spec.experts.normalized
    mixtral = spec_of("llama", expert_count=8, expert_used_count=2)
    assert mixtral.experts is not None
    assert (mixtral.experts.intermediate_size, mixtral.experts.normalized) == (96, True)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expert_used_count": 9}, "expert_used_count' must be an integer from 1 to 8, found 9"),
        ({"expert_count": 2000}, "expert_count' must be an integer from 1 to 1,024"),
        ({"block_count": 5000}, "block_count' must be an integer from 1 to 4,096"),
        ({"expert_feed_forward_length": None}, "lacks 'qwen3moe.expert_feed_forward_length'"),
    ],
)
def test_numbers_out_of_range_are_one_clear_error(changes, expected):
    experts = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}
    with pytest.raises(ModelLoadError, match=expected):
        spec_of("qwen3moe", **{**experts, **changes})


def test_a_pattern_is_flags_or_a_period():
    flags = Metadata(PATH, {"key": np.array([True, False, False])})
    assert read_layer_pattern(flags, "key", 3, period=2) == (True, False, False)
    assert read_layer_pattern(Metadata(PATH, {"key": 3}), "key", 4, period=2) == (True, True, False, True)
    with pytest.raises(ModelLoadError, match="must be an array of 4 numbers"):
        read_layer_pattern(flags, "key", 4, period=2)


def test_rows_are_split_without_a_copy():
    raw = np.arange(6 * 4 * 2, dtype=np.uint8)
    parts = split_rows(Weight("gate_up", (6, 4), Quantization.F16, raw), 3)
    assert [part.shape for part in parts] == [(3, 4), (3, 4)]
    assert all(np.shares_memory(part.raw, raw) for part in parts)
    assert np.concatenate([part.raw for part in parts]).tobytes() == raw.tobytes()
