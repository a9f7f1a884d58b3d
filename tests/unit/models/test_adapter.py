"""LoRA adapters from their files: the logits of PEFT and transformers, and what is refused."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from gguf_writer import GGML_TYPE_IDS, Tensor, write_gguf
from lora_adapters import lora_tensors, write_lora
from safetensors_writer import bfloat16_bits, write_raw

from octavo.errors import AdapterError
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kv.spec import KVCacheSpec
from octavo.models.adapter import ReadAdapter, read_adapter
from octavo.models.loaded import LoadedModel, load_model

GOLDENS = Path(__file__).parents[2] / "goldens" / "lora"
GOLDEN_BASE = {"quantization": "F32", "num_heads": 4, "num_kv_heads": 2, "head_dim": 24}
MAX_BYTES = 1 << 30

native = partial(NativeInterpreter, max_num_tokens=32, max_logit_rows=32, num_threads=1)


def read(path, model: LoadedModel, *, max_bytes: int = MAX_BYTES) -> ReadAdapter:
    return read_adapter(path, model, max_bytes=max_bytes)


def all_logits(make_interpreter, model: LoadedModel, adapter: ReadAdapter, prompt: np.ndarray) -> np.ndarray:
    spec = KVCacheSpec(
        block_size=16,
        num_layers=model.spec.num_layers,
        num_kv_heads=model.spec.num_kv_heads,
        head_dim=model.spec.head_dim,
        dtype="float32",
    )
    interpreter = make_interpreter(model.program, spec, 1)
    interpreter.set_adapter(0, adapter.adapter)
    rows = np.arange(len(prompt), dtype=np.int32)
    step = StepInput(
        token_ids=prompt.astype(np.int32),
        positions=rows,
        query_start_loc=np.array([0, len(prompt)], np.int32),
        seq_lens=np.array([len(prompt)], np.int32),
        block_tables=np.zeros((1, 1), np.int32),
        logit_rows=rows,
        adapter_slots=np.zeros(1, np.int32),
    )
    logits = interpreter.run(step).copy()
    interpreter.close()
    return logits


@pytest.mark.parametrize("make_interpreter", [ReferenceInterpreter, native], ids=["reference", "native"])
@pytest.mark.parametrize("base", ["gguf", "folder"])
@pytest.mark.parametrize("name", ["all", "stabilised"])
def test_logits_are_those_of_peft(name, base, make_interpreter, tiny_llama, tiny_folder):
    """Rows of queries and keys lie otherwise in a GGUF file than in a folder; the adapter's follow them."""
    model = load_model((tiny_llama if base == "gguf" else tiny_folder)(**GOLDEN_BASE))
    golden = np.load(GOLDENS / name / "logits.npz")
    got = all_logits(make_interpreter, model, read(GOLDENS / name, model), golden["prompt"])
    np.testing.assert_allclose(got, golden["logits"], atol=1e-4)


@pytest.fixture(scope="module")
def model(tiny_llama) -> LoadedModel:
    return load_model(tiny_llama())


def test_bfloat16_and_float32_hold_the_same_numbers(model, tmp_path):
    rounded = {name: bfloat16_bits(values) for name, values in lora_tensors().items()}
    floats = {name: (bits.astype(np.uint32) << 16).view(np.float32) for name, bits in rounded.items()}
    first, second = (
        read(write_lora(tmp_path / str(i), tensors), model).adapter.pairs
        for i, tensors in enumerate((rounded, floats))
    )
    assert first.keys() == second.keys()
    for weight, pair in first.items():
        np.testing.assert_array_equal(pair.a, second[weight].a)
        np.testing.assert_array_equal(pair.b, second[weight].b)


def test_the_revision_follows_the_files(model, tmp_path):
    first = read(write_lora(tmp_path / "a"), model)
    again = read(write_lora(tmp_path / "b"), model)
    scaled = read(write_lora(tmp_path / "c", config={"lora_alpha": 9}), model)
    other = read(write_lora(tmp_path / "d", lora_tensors(seed=1)), model)
    assert first.revision == again.revision
    assert len({first.revision, scaled.revision, other.revision}) == 3
    assert (
        first.num_bytes
        == 4 * 4 * sum(map(sum, [(96, 64), (32, 64), (32, 64), (64, 96)] + 3 * [(96, 64)])) * 2
    )


def gguf_adapter(path: Path, tensors: dict[str, np.ndarray], **metadata) -> Path:
    entries = {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": 8.0,
    }
    entries = {key: value for key, value in {**entries, **metadata}.items() if value is not None}
    stored = {
        name: Tensor(values.shape, GGML_TYPE_IDS["F32"], values.tobytes()) for name, values in tensors.items()
    }
    return write_gguf(path, entries, stored)


def test_an_adapter_in_a_gguf_file_is_the_one_in_the_folder(model, tmp_path):
    folder = write_lora(tmp_path / "folder")
    from_folder = read(folder, model).adapter.pairs
    tensors = {}
    for weight, pair in from_folder.items():  # which are in GGUF's order already
        tensors |= {f"{weight.name}.lora_a": pair.a, f"{weight.name}.lora_b": pair.b}
    from_gguf = read(gguf_adapter(tmp_path / "adapter.gguf", tensors), model).adapter.pairs
    assert from_gguf.keys() == from_folder.keys()
    for weight, pair in from_gguf.items():
        np.testing.assert_array_equal(pair.b, from_folder[weight].b)
        assert pair.scale == from_folder[weight].scale == 2.0


@pytest.mark.parametrize(
    ("metadata", "tensors", "expected"),
    [
        ({"general.type": "model"}, {}, "not a LoRA adapter: general.type is 'model'"),
        ({"general.architecture": "qwen2"}, {}, "the adapter is for 'qwen2', the model is 'llama'"),
        ({"adapter.lora.alpha": None}, {}, "lacks 'adapter.lora.alpha'"),
        ({}, {}, "the adapter has no matrices"),
        ({}, {"blk.0.attn_q.weight.lora_a": (4, 64)}, "weight 'blk.0.attn_q.weight' has no lora_b"),
    ],
)
def test_a_gguf_file_that_is_no_adapter_for_the_model(model, tmp_path, metadata, tensors, expected):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    with pytest.raises(AdapterError, match=expected):
        read(gguf_adapter(tmp_path / "adapter.gguf", arrays, **metadata), model)


def test_a_gguf_adapter_does_not_go_with_a_folder(tiny_folder, tmp_path):
    arrays = {f"blk.0.attn_v.weight.lora_{half}": np.zeros((4, 4), np.float32) for half in "ab"}
    folder = load_model(tiny_folder(num_heads=4, head_dim=24))
    with pytest.raises(AdapterError, match="GGUF adapters go with GGUF models"):
        read(gguf_adapter(tmp_path / "adapter.gguf", arrays), folder)


Q = "base_model.model.model.layers.0.self_attn.q_proj"


def changed(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """The ordinary tensors, some of layer 0's q_proj replaced or gone."""
    tensors = {**lora_tensors(), **{f"{Q}.{name}.weight": values for name, values in changes.items()}}
    return {name: values for name, values in tensors.items() if values is not None}


def floats(*shape: int, fill: float = 1.0) -> np.ndarray:
    return np.full(shape, fill, np.float32)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (changed(lora_B=None), "module 'model.layers.0.self_attn.q_proj' has no lora_B"),
        (changed(lora_A=None), "has no lora_A"),
        (changed(lora_A=floats(4, 32)), r"shapes \(4, 32\) and \(96, 4\), but a weight of \(96, 64\)"),
        (
            changed(lora_B=floats(64, 4)),
            r"needs \(rank, 64\) and \(96, rank\) \(the adapter was trained on 'o/b'",
        ),
        (changed(lora_B=floats(96, 5)), r"shapes \(4, 64\) and \(96, 5\)"),
        (changed(lora_A=floats(4)), r"shapes \(4,\) and"),
        (changed(lora_A=floats(0, 64), lora_B=floats(96, 0)), "has rank 0; ranks from 1 to 256"),
        (changed(lora_A=floats(257, 64), lora_B=floats(96, 257)), "has rank 257; ranks from 1 to 256"),
        (changed(lora_A=floats(4, 64, fill=np.nan)), "hold numbers that are not finite"),
        (changed(lora_B=floats(96, 4, fill=np.inf)), "hold numbers that are not finite"),
        (changed(lora_A=np.ones((4, 64), np.int64)), "has type I64"),
        (changed(lora_magnitude_vector=floats(96)), "is no LoRA matrix of a linear layer"),
        ({f"{Q}.weight": floats(96, 64)}, "is no LoRA matrix of a linear layer"),
        (
            lora_tensors(num_layers=3),
            "changes 'model.layers.2.self_attn.q_proj', which adapters cannot change",
        ),
        (
            {f"base_model.model.lm_head.lora_{half}.weight": floats(4, 4) for half in "AB"},
            "changes 'lm_head', which adapters cannot change in this model",
        ),
        ({}, "the adapter has no matrices"),
    ],
)
def test_matrices_that_do_not_fit_are_one_clear_error(model, tmp_path, tensors, expected):
    folder = write_lora(tmp_path / "adapter", tensors, config={"base_model_name_or_path": "o/b"})
    with pytest.raises(AdapterError, match=expected) as caught:
        read(folder, model)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"peft_type": "LOHA"}, "peft_type 'LOHA' is not supported"),
        ({"use_dora": True}, "use_dora is not supported"),
        ({"init_lora_weights": "pissa_niter_16"}, "'pissa_niter_16' changes the base, too"),
        ({"init_lora_weights": "OLoRA"}, "'OLoRA' changes the base, too"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is not supported"),
        ({"bias": "all"}, "trained biases are not supported"),
        ({"lora_alpha": 0}, "'lora_alpha' must be a positive number"),
        ({"lora_alpha": float("nan")}, "'lora_alpha' must be a positive number"),
        ({"use_rslora": "yes"}, "'use_rslora' must be true or false"),
        ({"alpha_pattern": {"(a+)+$": 4}}, r"alpha_pattern '\(a\+\)\+\$' is not supported"),
        ({"alpha_pattern": {"q_proj": "x"}}, "'q_proj' must be a positive number"),
    ],
)
def test_a_configuration_that_means_more_is_refused(model, tmp_path, config, expected):
    with pytest.raises(AdapterError, match=expected):
        read(write_lora(tmp_path / "adapter", config=config), model)


def test_files_that_are_not_there_or_damaged(model, tmp_path):
    with pytest.raises(
        AdapterError, match=r"there is no adapter: a folder with adapter_config\.json, or a GGUF file"
    ):
        read(tmp_path / "nowhere", model)
    (tmp_path / "empty").mkdir()
    with pytest.raises(AdapterError, match=r"adapter_config\.json: no such file"):
        read(tmp_path / "empty", model)
    folder = write_lora(tmp_path / "damaged")
    write_raw(folder / "adapter_model.safetensors", json.dumps({"x": 1}).encode())
    with pytest.raises(AdapterError, match="must have a dtype"):
        read(folder, model)
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(AdapterError, match=r"adapter_model\.bin is a pickle"):
        read(folder, model)
    with pytest.raises(AdapterError, match="there is no adapter: a folder"):
        read("a\0b", model)


def test_an_adapter_larger_than_its_room_is_refused_before_it_is_read(model, tmp_path):
    with pytest.raises(AdapterError, match="needs 0 MiB of memory, there is room for 0; unload another one"):
        read(write_lora(tmp_path / "adapter"), model, max_bytes=1000)
