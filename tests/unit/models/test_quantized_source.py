import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors_writer import write_safetensors

from octavo.errors import ConfigError, ModelLoadError
from octavo.kernels.program import Embed, Linear, Logits
from octavo.kernels.quantization import dequantize, quantize
from octavo.kernels.weight import Quantization, Weight
from octavo.models import quantized_source
from octavo.models.cache_folder import cache_folder, marker_of
from octavo.models.huggingface_folder import HuggingFaceFolder
from octavo.models.loaded import LoadedModel, load_model
from octavo.models.packed_cache import make_room, packed_files, packed_folder
from octavo.models.safetensors_file import SafetensorsFile
from octavo.models.weight_plan import planned_quantization
from octavo.models.weight_quantizer import quantized_pieces


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return packed_folder(cache_folder())


def matrices(model: LoadedModel) -> dict[str, Weight]:
    found = {}
    for op in model.program.ops:
        parts = op.parts if isinstance(op, Linear) else [op.weight] if isinstance(op, Embed | Logits) else []
        found |= {part.name: part for part in parts}
    return found


def packed_path(cache: Path) -> Path:
    (path,) = cache.glob("*.safetensors")
    return path


@pytest.fixture
def times_packed(monkeypatch):
    """How often weights were really packed."""
    calls = []
    pack = quantized_source.pack
    monkeypatch.setattr(quantized_source, "pack", lambda *args: calls.append(1) or pack(*args))
    return calls


@pytest.mark.parametrize(("kind", "inside"), [("int8", Quantization.Q8_0), ("int4", Quantization.Q4_1)])
def test_matrices_are_quantised_and_the_head_and_embeddings_at_8_bits(tiny_folder, kind, inside):
    folder = tiny_folder(tied_head=False)
    plain, model = matrices(load_model(folder)), matrices(load_model(folder, quantization=kind))
    assert model.keys() == plain.keys()
    for name, weight in model.items():
        expected = Quantization.Q8_0 if name in ("token_embd.weight", "output.weight") else inside
        assert weight.quantization is expected
        assert np.array_equal(weight.raw, quantize(dequantize(plain[name]), expected)), name


def test_errors_of_quantised_weights_are_within_half_a_step(tiny_folder):
    folder = tiny_folder()
    plain, model = matrices(load_model(folder)), matrices(load_model(folder, quantization="int4"))
    for name, weight in model.items():
        groups = dequantize(plain[name]).reshape(-1, 32)
        steps = 15 if weight.quantization is Quantization.Q4_1 else 127
        span = np.ptp(groups, axis=1) if steps == 15 else np.abs(groups).max(axis=1)
        error = np.abs(dequantize(weight).reshape(-1, 32) - groups).max(axis=1)
        assert (error <= span / steps * 0.51 + 2e-3 * np.abs(groups).max(axis=1)).all(), name


def test_the_second_start_maps_what_the_first_packed(tiny_folder, times_packed):
    folder = tiny_folder()
    first, second = (load_model(folder, quantization="int4") for _ in range(2))
    assert len(times_packed) == 1
    assert first.fingerprint == second.fingerprint
    weight = matrices(second)["blk.0.attn_q.weight"]
    assert not weight.raw.flags.owndata
    assert np.array_equal(weight.raw, matrices(first)["blk.0.attn_q.weight"].raw)


def test_kinds_differ_in_their_fingerprints(tiny_folder):
    folder = tiny_folder()
    prints = {load_model(folder, quantization=kind).fingerprint for kind in ("none", "int8", "int4")}
    assert len(prints) == 3


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_packed_file_is_made_again(tiny_folder, cache, times_packed, damage):
    folder = tiny_folder()
    load_model(folder, quantization="int4")
    path = packed_path(cache)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[-5] ^= 1
    bad = {"flip": bytes(flipped), "cut": good[:-40], "empty": b"", "other": b"x" * len(good)}[damage]
    path.write_bytes(bad)
    load_model(folder, quantization="int4")
    assert len(times_packed) == 2
    assert path.read_bytes() == good


def test_a_copied_packed_file_is_read_once_and_kept(tiny_folder, cache, times_packed):
    folder = tiny_folder()
    load_model(folder, quantization="int4")
    marker_of(packed_path(cache)).unlink()
    load_model(folder, quantization="int4")
    assert len(times_packed) == 1
    assert marker_of(packed_path(cache)).exists()


def test_changed_weights_are_packed_anew(tiny_folder, cache, times_packed):
    folder = tiny_folder()
    load_model(folder, quantization="int4")
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1000] ^= 64  # where no fingerprint looks
    file.write_bytes(content)
    load_model(folder, quantization="int4")
    assert len(times_packed) == 2
    assert len(list(cache.glob("*.safetensors"))) == 2


def test_what_stopped_halfway_leaves_nothing(tiny_folder, cache, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.models.packed_weights.quantized_pieces", fail)
    with pytest.raises(KeyboardInterrupt):
        load_model(tiny_folder(), quantization="int4")
    assert [path.name for path in cache.iterdir()] == ["pack.lock"]


def test_a_folder_that_cannot_be_written_to_is_one_line_with_the_ways_out(tiny_folder, cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")
    with pytest.raises(ModelLoadError, match=r"cannot store .*octavo models clean.*XDG_CACHE_HOME"):
        load_model(tiny_folder(), quantization="int4")


def test_a_full_disk_is_said_before_anything_is_packed(tiny_folder, cache, times_packed, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(
        ModelLoadError, match=r"No space left on device; make room with `octavo models clean`"
    ):
        load_model(tiny_folder(), quantization="int4")
    assert not times_packed
    assert [path.name for path in cache.iterdir()] == ["pack.lock"]


def test_a_folder_that_is_only_for_reading_is_used_as_it_is(tiny_folder, cache, times_packed, monkeypatch):
    folder = tiny_folder()
    load_model(folder, quantization="int4")
    marker_of(packed_path(cache)).unlink()

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("octavo.models.packed_weights.mark_verified", refuse)
    load_model(folder, quantization="int4")
    assert len(times_packed) == 1


def test_a_gguf_file_has_its_own_quantisation(tiny_llama):
    with pytest.raises(ConfigError, match="quantization=int4 is for folders of safetensors files"):
        load_model(tiny_llama(), quantization="int4")


def test_nothing_is_packed_of_a_model_that_cannot_be_run(tiny_folder, times_packed):
    folder = tiny_folder()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(ModelLoadError):
        load_model(folder, quantization="int4")
    assert not times_packed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(tiny_folder, value):
    folder = tiny_folder()
    stored = SafetensorsFile(folder / "model.safetensors")
    tensors = {name: dequantize(stored.weight(name)) for name in stored.tensors}
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = value
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(ModelLoadError, match=r"'blk.1.ffn_up.weight' holds numbers that are not finite"):
        load_model(folder, quantization="int8")


def test_pieces_do_not_depend_on_threads_or_on_where_they_begin():
    values = np.random.default_rng(3).standard_normal((700, 352)).astype(np.float32)
    weight = Weight("w", values.shape, Quantization.F32, values.view(np.uint8).reshape(-1))
    for threads in (1, 3):
        with ThreadPoolExecutor(threads) as executor:
            pieces = list(quantized_pieces(weight, Quantization.Q4_1, executor))
        assert len(pieces) > 1
        assert np.array_equal(np.concatenate(pieces), quantize(values, Quantization.Q4_1))


@pytest.mark.parametrize(
    ("name", "shape", "kind", "expected"),
    [
        ("blk.0.attn_q.weight", (8, 64), "int4", Quantization.Q4_1),
        ("blk.0.attn_q.weight", (8, 64), "int8", Quantization.Q8_0),
        ("blk.0.attn_q.weight", (8, 64), "none", None),
        ("blk.0.attn_q.weight", (8, 40), "int4", None),
        ("blk.0.attn_q.bias", (64,), "int4", None),
        ("blk.0.ffn_gate_inp.weight", (8, 64), "int4", None),
        ("blk.0.ffn_gate_exps.weight", (4, 8, 64), "int4", Quantization.Q4_1),
        ("token_embd.weight", (8, 64), "int4", Quantization.Q8_0),
        ("output.weight", (8, 64), "int4", Quantization.Q8_0),
    ],
)
def test_what_becomes_of_a_tensor(name, shape, kind, expected):
    assert planned_quantization(name, shape, kind) is expected


def test_what_was_used_least_recently_goes_first(tmp_path):
    for age, name in enumerate(["new", "middle", "old"]):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(bytes(100))
        marker_of(path).touch()
        os.utime(marker_of(path), (1e9 - age, 1e9 - age))
    (tmp_path / "killed.partial").write_bytes(b"x")
    make_room(tmp_path, 50, max_bytes=260)
    assert [file.path.stem for file in packed_files(tmp_path)] == ["new", "middle"]
    make_room(tmp_path, 500, max_bytes=260)
    assert list(tmp_path.iterdir()) == []


def test_the_original_weights_are_still_there(tiny_folder):
    source = HuggingFaceFolder(tiny_folder())
    assert source.weight("blk.0.attn_q.weight").quantization is Quantization.F32
