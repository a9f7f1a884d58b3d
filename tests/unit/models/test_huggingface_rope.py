"""Rope parameters of config.json, against transformers' frequencies (tests/fixtures/make_rope_goldens.py)."""

import json
from pathlib import Path

import pytest

from octavo.errors import ModelLoadError
from octavo.kernels.program import RopeSpec, RopeStyle
from octavo.models.gguf_metadata import Metadata
from octavo.models.huggingface_rope import rope_metadata
from octavo.models.rope import CONFIGURED_CONTEXT, read_rope

GOLDENS = json.loads((Path(__file__).parents[2] / "goldens" / "rope.json").read_text())
PATH = Path("config.json")


def rope_of(config, *, head_dim=32, max_model_len=None) -> RopeSpec:
    """What a model with this configuration, and no tensors for its rope, turns by."""
    entries = rope_metadata(config, PATH, architecture="llama", head_dim=head_dim)
    entries["llama.context_length"] = config.get("max_position_embeddings", 2048)
    if max_model_len is not None:
        entries[CONFIGURED_CONTEXT] = max_model_len
    return read_rope(
        Metadata(PATH, entries),
        {},
        architecture="llama",
        style=RopeStyle.HALF_SPLIT,
        head_dim=head_dim,
    )


@pytest.mark.parametrize(
    "golden", GOLDENS["cases"], ids=lambda case: f"{case['name']} {case['max_model_len']}"
)
def test_frequencies_are_those_of_transformers(golden):
    rope = rope_of(golden["config"], head_dim=GOLDENS["head_dim"], max_model_len=golden["max_model_len"])
    assert rope.rotary_dim == 2 * len(golden["frequencies"])
    assert rope.frequencies == pytest.approx(golden["frequencies"], rel=1e-6)  # theirs are float32
    assert rope.magnitude == pytest.approx(golden["magnitude"], rel=1e-12)


def test_nothing_said_is_the_plain_rope():
    plain = [10_000 ** (-i / 16) for i in range(16)]
    assert rope_of({}).frequencies == pytest.approx(plain, rel=1e-14)
    for section in ({"rope_scaling": None}, {"rope_parameters": {"rope_type": "default"}}):
        assert rope_of(section) == rope_of({})


def test_a_part_of_each_head_is_rotated():
    for config in ({"partial_rotary_factor": 0.25}, {"rope_parameters": {"partial_rotary_factor": 0.25}}):
        rope = rope_of(config)
        assert rope.rotary_dim == 8
        assert rope.frequencies == pytest.approx([10_000 ** (-i / 4) for i in range(4)], rel=1e-14)


def test_layers_with_a_window_have_a_base_of_their_own():
    newer = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    }
    older = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    for config in (newer, older):
        assert rope_metadata(config, PATH, architecture="gemma3", head_dim=8) == {
            "gemma3.rope.dimension_count": 8,
            "gemma3.rope.freq_base": 1e6,
            "gemma3.rope.freq_base_swa": 1e4,
            "gemma3.rope.scaling.type": "linear",
            "gemma3.rope.scaling.factor": 8.0,
        }


def test_the_configured_context_decides_between_short_and_long_factors():
    config = next(case["config"] for case in GOLDENS["cases"] if case["name"] == "longrope")
    ropes = [rope_of(config, max_model_len=length) for length in (None, 131_072, 4097, 4096, 100)]
    assert ropes[0] == ropes[1] == ropes[2]
    assert ropes[3] == ropes[4]
    assert ropes[0].frequencies != ropes[3].frequencies


ONES = [1.0] * 4


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "rope type 'dynamic' is not supported; default, linear"),
        ({"rope_type": 3}, "'rope_type' must be a string, found 3"),
        ({"rope_type": "linear"}, "lacks 'factor'"),
        ({"rope_type": "linear", "factor": 0}, "'factor' must be a positive number, found 0"),
        ({"rope_type": "linear", "factor": float("nan")}, "'factor' must be a positive number, found nan"),
        ({"rope_type": "llama3", "factor": 8.0}, "lacks 'low_freq_factor'"),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 4.0,
                "high_freq_factor": 4,
                "original_max_position_embeddings": 64,
            },
            "high_freq_factor must be above low_freq_factor 4, found 4",
        ),
        ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1.0}, "frequencies that are not finite"),
        ({"rope_type": "yarn", "factor": 4.0, "truncate": "no"}, "'truncate' must be true or false"),
        (
            {"rope_type": "longrope", "short_factor": ONES},
            "long_factor must be a list of numbers, found None",
        ),
        ({"rope_type": "longrope", "short_factor": "1", "long_factor": ONES}, "short_factor must be a list"),
        (
            {"rope_type": "longrope", "short_factor": [1], "long_factor": ONES},
            "'llama.rope.scaling.short_factors' must be an array of 4 numbers, found an array of 1",
        ),
        (
            {"rope_type": "longrope", "short_factor": [1, 1, 1, -1], "long_factor": ONES},
            "short_factor must hold positive numbers, found -1",
        ),
        (
            {"rope_type": "longrope", "short_factor": ONES, "long_factor": [1, {}, 1, 1]},
            "long_factor must hold positive numbers, found {}",
        ),
        ({"partial_rotary_factor": 2.0}, "partial_rotary_factor must be at most 1, found 2"),
        ({"partial_rotary_factor": 0.4}, "must be even and at most the head size 8, found 3"),
        ({"partial_rotary_factor": 0.01}, "must be an integer from 1 to"),
        (["linear"], "rope_parameters must be an object"),
        ({"sliding_attention": 7}, "rope_parameters must be an object, found 7"),
        ({"sliding_attention": {"rope_type": "linear"}}, "scaled rope in layers with a window"),
    ],
)
def test_what_makes_no_sense_is_one_clear_error(section, expected):
    with pytest.raises(ModelLoadError, match=expected) as caught:
        rope_of({"rope_parameters": section}, head_dim=8)
    assert str(caught.value).startswith("config.json: ")
    assert "\n" not in str(caught.value)
