import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors_writer import bfloat16_bits, write_safetensors

from octavo.errors import ModelLoadError
from octavo.kernels.interpreter import StepInput
from octavo.kernels.program import RopeStyle
from octavo.kernels.quantization import dequantize
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.weight import Quantization
from octavo.kv.spec import KVCacheSpec
from octavo.models.huggingface_folder import HuggingFaceFolder
from octavo.models.huggingface_names import gguf_name
from octavo.models.loaded import LoadedModel, load_model
from octavo.models.safetensors_file import SafetensorsFile

TOKENS = [1, 7, 60, 100, 30, 4, 4, 200, 271]


def logits_of(model: LoadedModel) -> np.ndarray:
    spec = model.spec
    shape = KVCacheSpec(
        block_size=16,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype="float32",
    )
    interpreter = ReferenceInterpreter(model.program, shape, 1, activations="float")
    step = StepInput(
        token_ids=np.array(TOKENS, np.int32),
        positions=np.arange(len(TOKENS), dtype=np.int32),
        query_start_loc=np.array([0, len(TOKENS)], np.int32),
        seq_lens=np.array([len(TOKENS)], np.int32),
        block_tables=np.zeros((1, 1), np.int32),
        logit_rows=np.arange(len(TOKENS), dtype=np.int32),
    )
    return interpreter.run(step).copy()


def change(path: Path, **changes: object) -> None:
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def error_of(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


@pytest.mark.parametrize(("tied_head", "num_shards"), [(True, 1), (False, 3)])
def test_a_folder_gives_the_logits_of_the_gguf_file(tiny_llama, tiny_folder, tied_head, num_shards):
    expected = load_model(tiny_llama(quantization="F32", tied_head=tied_head))
    model = load_model(tiny_folder(tied_head=tied_head, num_shards=num_shards))
    assert model.spec.layers[0].rope.style is RopeStyle.HALF_SPLIT
    assert model.num_parameters == expected.num_parameters
    assert np.allclose(logits_of(model), logits_of(expected), atol=1e-5)


def test_a_folder_has_the_tokenizer_of_the_gguf_file(tiny_llama, tiny_folder):
    expected, found = load_model(tiny_llama()).tokenizer, load_model(tiny_folder()).tokenizer
    for text in ("the cat", "", "na\u00efve \U0001f642 12345", "<|im_end|> the", "a\n\n  b\t"):
        for special in (False, True):
            assert found.encode(text, parse_special=special) == expected.encode(text, parse_special=special)
    messages = [{"role": "user", "content": "the <|im_end|> cat"}]
    assert found.apply_chat_template(messages) == expected.apply_chat_template(messages)
    assert found.eos_token_ids == expected.eos_token_ids


def test_bfloat16_matrices_stay_and_vectors_become_float32(tmp_path, tiny_folder):
    folder = tiny_folder()
    file = folder / "model.safetensors"
    stored = SafetensorsFile(file)
    tensors = {name: dequantize(stored.weight(name)) for name in stored.tensors}
    write_safetensors(file, {name: bfloat16_bits(values) for name, values in tensors.items()})
    opened = HuggingFaceFolder(folder)
    assert opened.weight("blk.0.attn_q.weight").quantization is Quantization.BF16
    norm = opened.weight("blk.0.attn_norm.weight")
    assert norm.quantization is Quantization.F32
    halves = bfloat16_bits(tensors["model.layers.0.input_layernorm.weight"])
    assert np.array_equal(bfloat16_bits(dequantize(norm)), halves)
    assert load_model(folder).weight_bytes < sum(values.nbytes for values in tensors.values())


def test_fingerprints_follow_the_configuration_and_the_weights(tiny_folder):
    first, second, other = tiny_folder(), tiny_folder(), tiny_folder(seed=1)
    assert load_model(first).fingerprint == load_model(second).fingerprint
    assert load_model(first).fingerprint != load_model(other).fingerprint
    change(second / "config.json", rope_theta=5e5)
    assert load_model(first).fingerprint != load_model(second).fingerprint


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model_type": "t5"}, "model_type 't5' is not supported; supported: llama, mistral"),
        ({"model_type": None}, "model_type None is not supported"),
        ({"model_type": ["llama"]}, "is not supported"),
        ({"hidden_size": -1}, "metadata 'hidden_size' must be an integer from 1"),
        ({"hidden_size": 48}, "must have shape"),
        ({"num_hidden_layers": 3}, "no tensor 'blk.2.attn_norm.weight'"),
        ({"num_hidden_layers": 1}, "tensor 'blk.1."),
        ({"num_hidden_layers": 1 << 40}, "num_hidden_layers"),
        ({"num_hidden_layers": 100_000}, "block_count"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantised already"),
        ({"tie_word_embeddings": False}, "no output head"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_line(tiny_folder, changes, problem):
    folder = tiny_folder()
    change(folder / "config.json", **changes)
    assert problem in error_of(folder)


@pytest.mark.parametrize(
    ("weight_map", "problem"),
    [
        ({"a": "../secret.safetensors"}, "is no safetensors file in this folder"),
        ({"a": "/etc/passwd"}, "is no safetensors file in this folder"),
        ({"a": "pytorch_model.bin"}, "is no safetensors file in this folder"),
        ({"a": "gone.safetensors"}, "1 of 1 files are missing, the first is 'gone.safetensors'"),
        ({"a": 7}, "must map names to files"),
        ({f"t{n}": f"{n}.safetensors" for n in range(2000)}, "names 2,000 files"),
        ({}, "must have a weight_map"),
        ([], "must have a weight_map"),
    ],
)
def test_an_index_names_only_files_beside_it(tiny_folder, weight_map, problem):
    folder = tiny_folder(num_shards=2)
    change(folder / "model.safetensors.index.json", weight_map=weight_map)
    assert problem in error_of(folder)


def test_pickles_are_never_read(tiny_folder):
    folder = tiny_folder()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "holds its weights as pickles, which are never read" in error_of(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(tiny_folder, name):
    folder = tiny_folder()
    (folder / name).unlink()
    assert name.partition(".")[2] in error_of(folder)


def test_an_empty_folder_is_one_line(tmp_path):
    assert "the folder has no config.json; give one with" in error_of(tmp_path)
    (tmp_path / "a.Q4_0.gguf").write_bytes(b"")
    assert "give a GGUF file by its name, such as" in error_of(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "a LoRA adapter; give its base as the model" in error_of(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"[" * 100_000, b"{" * 100_000, b'{"a":1,"a":2}', b"\xff", b"1" * 5000]
)
def test_files_that_are_no_json_objects_are_one_line(tiny_folder, name, content):
    folder = tiny_folder(num_shards=2)
    (folder / name).write_bytes(content)
    error_of(folder)


def test_a_tensor_in_two_files_is_refused(tiny_folder):
    folder = tiny_folder(num_shards=2)
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "model-00002-of-00002.safetensors")
    assert "is there twice" in error_of(folder)


def test_tensors_of_all_files_are_bounded(tiny_folder, monkeypatch):
    folder = tiny_folder(num_shards=2)
    monkeypatch.setattr("octavo.models.huggingface_folder._MAX_TENSORS", 10)
    assert "there are more than 10 tensors" in error_of(folder)


@pytest.mark.parametrize(
    ("name", "architecture", "expected"),
    [
        ("model.layers.3.mlp.experts.12.up_proj.weight", "qwen3moe", "blk.3.ffn_up.12.weight"),
        ("model.layers.3.mlp.gate.weight", "qwen3moe", "blk.3.ffn_gate_inp.weight"),
        ("model.layers.0.post_attention_layernorm.weight", "llama", "blk.0.ffn_norm.weight"),
        ("model.layers.0.post_attention_layernorm.weight", "gemma2", "blk.0.post_attention_norm.weight"),
        ("language_model.model.layers.0.self_attn.q_norm.weight", "gemma3", "blk.0.attn_q_norm.weight"),
        ("model.language_model.layers.1.self_attn.q_proj.weight", "gemma3", "blk.1.attn_q.weight"),
        ("model.language_model.model.embed_tokens.weight", "gemma3", "token_embd.weight"),
        ("vision_tower.encoder.weight", "gemma3", None),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "llama", None),
        ("model.layers.0.something.weight", "llama", "model.layers.0.something.weight"),
        ("model.layers.0.self_attn.q_proj.bias", "qwen2", "blk.0.attn_q.bias"),
    ],
)
def test_names_of_tensors(name, architecture, expected):
    assert gguf_name(name, architecture) == expected


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=3)
)
KEYS = [
    "model_type", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rope_scaling",
    "num_hidden_layers", "intermediate_size", "max_position_embeddings", "rms_norm_eps", "rope_theta",
    "sliding_window", "tie_word_embeddings", "layer_types", "text_config", "eos_token_id",
    "use_sliding_window",
]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3))
def test_any_configuration_is_read_or_refused_in_one_line(fuzzed_folder, changes):
    folder, good = fuzzed_folder
    (folder / "config.json").write_text(json.dumps({**good, **changes}))
    try:
        load_model(folder)
    except ModelLoadError as error:
        assert "\n" not in str(error)  # noqa: PT017


@pytest.fixture(scope="module")
def fuzzed_folder(tiny_folder):
    folder = tiny_folder()
    return folder, json.loads((folder / "config.json").read_text())
