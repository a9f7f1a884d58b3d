"""`octavo models` and `octavo inspect`, whole commands."""

import json

import pytest

from octavo.cli.main import run
from octavo.models.cache_folder import cache_folder
from octavo.models.loaded import load_model
from octavo.models.packed_cache import packed_files, packed_folder


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("octavo.cli.model_cache.cached_on_this_machine", list)


def output_of(capsys, *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_inspect_says_what_a_file_is(tiny_llama, capsys):
    path = tiny_llama(quantization="Q4_0", embedding_quantization="Q8_0")
    text = " ".join(output_of(capsys, "inspect", str(path), "--kv-dtype", "float16").split())
    for part in ("tiny Q4_0", "llama, 2 layers of 64", "512 tokens", "256 bytes in float16", "default"):
        assert part in text


def test_inspect_gives_json_with_formats_per_group(tiny_llama, capsys):
    path = tiny_llama(quantization="Q4_0", embedding_quantization="Q8_0")
    found = json.loads(output_of(capsys, "inspect", str(path), "--json"))
    model = load_model(path)
    groups = {group["group"]: group for group in found["tensor_groups"]}
    assert {name: group["run_as"] for name, group in groups.items()} == {
        "embeddings": "Q8_0",
        "norms and biases": "F32",
        "attention": "Q4_0",
        "MLP": "Q4_0",
    }
    assert (
        sum(group["parameters"] for group in groups.values()) == found["parameters"] == model.num_parameters
    )
    assert found["weight_bytes"] == model.weight_bytes
    assert found["end_token_ids"] == [0, 2]


def test_inspect_shows_a_quantisation_and_packs_nothing(tiny_folder, capsys):
    found = json.loads(output_of(capsys, "inspect", str(tiny_folder()), "--quantization", "int4", "--json"))
    formats = {(group["group"], group["stored_as"], group["run_as"]) for group in found["tensor_groups"]}
    assert formats == {
        ("embeddings", "F32", "Q8_0"),
        ("norms and biases", "F32", "F32"),
        ("attention", "F32", "Q4_1"),
        ("MLP", "F32", "Q4_1"),
    }
    assert not packed_folder(cache_folder()).exists()


def test_inspect_shows_no_quantisation_that_a_file_cannot_have(tiny_llama, capsys):
    error = output_of(capsys, "inspect", str(tiny_llama()), "--quantization", "int4", code=2)
    assert "is for folders of safetensors files" in error


@pytest.mark.parametrize(("kv_dtype", "bytes_per_head"), [("float16", 32), ("float32", 64), ("int8", 20)])
def test_inspect_counts_what_a_token_takes_in_the_cache(tiny_llama, capsys, kv_dtype, bytes_per_head):
    arguments = ("inspect", str(tiny_llama()), "--kv-dtype", kv_dtype)
    found = json.loads(output_of(capsys, *arguments, "--json"))
    assert found["kv_bytes_per_token"] == 2 * 2 * 2 * bytes_per_head
    assert f"{2 * 2 * 2 * bytes_per_head} bytes in {kv_dtype}" in output_of(capsys, *arguments)


def test_inspect_of_nothing_is_one_line(capsys):
    assert "no such file" in output_of(capsys, "inspect", "nowhere.gguf", code=2)


def test_models_lists_removes_and_cleans_packed_weights(tiny_folder, capsys):
    assert "nothing is cached" in output_of(capsys, "models")
    for kind in ("int4", "int8"):
        load_model(tiny_folder(), quantization=kind)
    found = json.loads(output_of(capsys, "models", "--json"))["models"]
    assert [model["source"] for model in found] == ["packed", "packed"]
    assert {model["quantization"] for model in found} == {"int4", "int8"}
    assert found[0]["name"][:20] in output_of(capsys, "models")
    assert "removed" in output_of(capsys, "models", "remove", found[0]["name"])
    assert len(packed_files(packed_folder(cache_folder()))) == 1
    assert "would remove" in output_of(capsys, "models", "clean")
    assert "removed packed weights of 1 models" in output_of(capsys, "models", "clean", "--yes")
    assert packed_files(packed_folder(cache_folder())) == []


def test_removing_what_is_not_there_is_one_line(capsys):
    assert "is not cached; `octavo models` lists what is" in output_of(
        capsys, "models", "remove", "x", code=2
    )


def test_a_whole_answer_from_a_quantised_folder(tiny_folder, capsys):
    arguments = ["--quiet", "--num-blocks", "32", "--max-tokens", "4", "--kernels", "reference"]
    model = ["--model", str(tiny_folder()), "--quantization", "int8"]
    assert output_of(capsys, "generate", "the cat", *model, *arguments) == output_of(
        capsys, "generate", "the cat", *model, *arguments
    )
