"""The scaling that a GGUF file asks for, against what transformers computes for the same model."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf_writer import GGML_TYPE_IDS, Tensor

from octavo.errors import ModelLoadError
from octavo.models.loaded import load_model

CASES = json.loads((Path(__file__).parents[2] / "goldens" / "rope.json").read_text())["cases"]


def golden(name: str, max_model_len: int | None = None) -> dict:
    return next(c for c in CASES if (c["name"], c["max_model_len"]) == (name, max_model_len))


def vector(values) -> Tensor:
    return Tensor((len(values),), GGML_TYPE_IDS["F32"], np.array(values, "<f4").tobytes())


def rope_of(tiny_llama, entries, tensors=None, *, context_length=512, max_model_len=None):
    metadata = {f"llama.rope.{key}": value for key, value in entries.items()}
    path = tiny_llama(head_dim=32, context_length=context_length, metadata=metadata, tensors=tensors)
    return load_model(path, max_model_len=max_model_len).spec.layers[0].rope


def test_yarn_is_that_of_transformers(tiny_llama):
    yarn = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 32_768}
    rope = rope_of(tiny_llama, {"freq_base": 1e6, **yarn})
    assert rope.frequencies == pytest.approx(golden("yarn")["frequencies"], rel=1e-6)
    assert rope.magnitude == pytest.approx(golden("yarn")["magnitude"], rel=1e-7)
    assert rope_of(tiny_llama, {**yarn, "scaling.attn_factor": 0.5}).magnitude == pytest.approx(
        0.5 * golden("yarn")["magnitude"], rel=1e-7
    )


def test_yarn_starts_from_the_context_of_the_model_if_it_names_no_other(tiny_llama):
    yarn = {"scaling.type": "yarn", "scaling.factor": 4.0}
    named = rope_of(tiny_llama, {**yarn, "scaling.original_context_length": 2048})
    assert rope_of(tiny_llama, yarn, context_length=2048) == named
    assert rope_of(tiny_llama, yarn, context_length=4096) != named


def test_slower_and_faster_limits_of_yarn_are_read(tiny_llama):
    yarn = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 2048}
    plain = rope_of(tiny_llama, yarn).frequencies
    for change in ("yarn_beta_fast", "yarn_beta_slow", "yarn_ext_factor"):
        assert rope_of(tiny_llama, {**yarn, f"scaling.{change}": 0.5}).frequencies != plain


@pytest.mark.parametrize("max_model_len", [4096, 4097])
def test_longrope_is_that_of_transformers(tiny_llama, max_model_len):
    wanted = golden("longrope", max_model_len)
    scaling = wanted["config"]["rope_scaling"]
    tensors = {
        "rope_factors_short.weight": vector(scaling["short_factor"]),
        "rope_factors_long.weight": vector(scaling["long_factor"]),
    }
    entries = {
        "dimension_count": 24,
        "scaling.original_context_length": 4096,
        "scaling.attn_factor": wanted["magnitude"],
    }
    for kind in ({}, {"scaling.type": "longrope"}):
        rope = rope_of(
            tiny_llama, entries | kind, tensors, context_length=131_072, max_model_len=max_model_len
        )
        assert rope.frequencies == pytest.approx(wanted["frequencies"], rel=1e-6)
        assert rope.magnitude == pytest.approx(wanted["magnitude"], rel=1e-6)


@pytest.mark.parametrize(
    ("entries", "tensors", "expected"),
    [
        ({"scaling.type": "yarn", "scaling.factor": -1.0}, {}, "scaling.factor' must be a positive number"),
        ({"scaling.type": "yarn", "scaling.yarn_log_multiplier": 0.1}, {}, "yarn_log_multiplier is not supp"),
        ({"scaling.type": "yarn", "freq_base": 1.0}, {}, "frequencies that are not finite"),
        ({}, {"rope_factors_long.weight": vector([1.0] * 16)}, "LongRoPE needs factors both short and long"),
        (
            {},
            {f"rope_factors_{kind}.weight": vector([1.0] * 3) for kind in ("short", "long")},
            "'rope_factors_short.weight' must have shape",
        ),
        (
            {},
            {f"rope_factors_{kind}.weight": vector([0.0] * 16) for kind in ("short", "long")},
            "frequencies that are not finite",
        ),
    ],
)
def test_what_makes_no_sense_is_one_clear_error(tiny_llama, entries, tensors, expected):
    with pytest.raises(ModelLoadError, match=expected):
        rope_of(tiny_llama, entries, tensors)
