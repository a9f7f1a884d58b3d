import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_writer import GGML_TYPE_IDS, Tensor, string, write_gguf

from octavo.errors import ModelLoadError
from octavo.kernels.weight import Quantization
from octavo.models.ggml_types import SUPPORTED
from octavo.models.gguf import GGUFFile

VALUES = {
    "an.int": 7,
    "a.large.int": 1 << 40,
    "a.negative.int": np.int32(-3),
    "a.float": 0.5,
    "a.double": np.float64(1e300),
    "a.flag": True,
    "a.text": "na\u00efve \U0001f642",
    "empty": "",
    "texts": ["one", "", "drei \u4e2d"],
    "no.texts": [],
    "numbers": np.array([1, 2, 3], np.int32),
    "floats": np.array([0.25, -1], np.float32),
    "flags": np.array([True, False]),
}


def f32(*values: float) -> Tensor:
    return Tensor((len(values),), GGML_TYPE_IDS["F32"], np.array(values, "<f4").tobytes())


def error_of(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        GGUFFile(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_kind_of_value(tmp_path, version):
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", VALUES, {}, version=version))
    assert file.metadata.values.keys() == VALUES.keys()
    for key, expected in VALUES.items():
        found = file.metadata.values[key]
        assert np.array_equal(found, expected), key
        assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray), key


@pytest.mark.parametrize("quantization", list(SUPPORTED.values()))
def test_agrees_with_the_gguf_package(tiny_llama, quantization):
    path = tiny_llama(quantization=quantization.value)
    file, oracle = GGUFFile(path), gguf.GGUFReader(path)
    for key, field in oracle.fields.items():
        if not key.startswith("GGUF."):
            assert np.array_equal(file.metadata.values[key], field.contents()), key
    assert list(file.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        weight = file.weight(tensor.name)
        assert weight.shape == tuple(reversed(tensor.shape.tolist()))
        assert weight.quantization == tensor.tensor_type.name
        assert weight.raw.nbytes == tensor.n_bytes == file.tensors[tensor.name].num_bytes
        assert np.array_equal(weight.raw, tensor.data.view(np.uint8).ravel())


def test_type_numbers_are_those_of_the_gguf_package():
    names = {type_id: gguf.GGMLQuantizationType(type_id).name for type_id in SUPPORTED}
    assert names == SUPPORTED
    assert set(SUPPORTED.values()) == set(Quantization)


def test_weights_are_views_that_outlive_the_file_object(tmp_path):
    weight = GGUFFile(write_gguf(tmp_path / "m.gguf", {}, {"t": f32(1, 2, 3)})).weight("t")
    assert not weight.raw.flags.owndata
    assert not weight.raw.flags.writeable
    assert weight.raw.view("<f4").tolist() == [1, 2, 3]


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_follows_the_alignment(tmp_path, alignment):
    tensors = {"a": f32(1, 2, 3), "b": f32(4)}
    path = write_gguf(tmp_path / "m.gguf", {"general.alignment": alignment}, tensors, alignment=alignment)
    file = GGUFFile(path)
    assert file.weight("b").raw.view("<f4").tolist() == [4]
    assert all(entry.offset % alignment == 0 for entry in file.tensors.values())


def test_every_truncation_is_an_error(tmp_path):
    tensors = {"t": f32(*range(16)), "u": f32(*range(8))}  # no padding behind the last tensor
    content = write_gguf(tmp_path / "m.gguf", VALUES, tensors).read_bytes()
    path = tmp_path / "short.gguf"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        error_of(path)


def test_a_truncated_download_says_so(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", {}, {"t": f32(*range(16))})
    path.write_bytes(path.read_bytes()[:-4])
    assert "tensor 't' ends at byte" in error_of(path)
    assert "truncated" in error_of(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not a GGUF file"),
        (b"GG", "not a GGUF file"),
        (b"PK\x03\x04 a zip file", "it starts with b'PK"),
        (b"GGUF\x03\x00", "the version needs 4 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 of GGUF is not supported"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0), "9,223,372,036,854,775,808 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63), "9,223,372,036,854,775,808 entries of metadata"),
    ],
)
def test_refuses_what_is_no_gguf_file(tmp_path, content, expected):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert expected in error_of(path)


def entry(type_id: int, value: bytes, key: bytes | None = None) -> bytes:
    return (string("key") if key is None else key) + struct.pack("<I", type_id) + value


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (entry(13, bytes(8)), "metadata 'key' has the unknown value type 13"),
        (entry(8, struct.pack("<Q", 1 << 62)), "a string of metadata 'key' ends beyond the file"),
        (entry(8, struct.pack("<Q", 2) + b"\xff\xff"), "not UTF-8"),
        (entry(8, struct.pack("<Q", 3) + b"\xed\xa0\x80"), "not UTF-8"),
        (entry(9, struct.pack("<IQ", 8, 1 << 61)), "metadata 'key' needs"),
        (entry(9, struct.pack("<IQ", 0, 1 << 61)), "metadata 'key' needs"),
        (entry(9, struct.pack("<IQ", 12, 1 << 61)), "metadata 'key' needs"),
        (entry(9, struct.pack("<IQ", 9, 1) * 50), "arrays within an array are not supported"),
        (entry(9, struct.pack("<IQ", 99, 1) + bytes(8)), "element type 99 is not supported"),
        (entry(7, b"\x01", key=string("k" * 2000)), "has 2,000 characters"),
        (entry(7, b"\x01", key=struct.pack("<Q", 1) + b"\xff"), "the key of metadata entry 0"),
    ],
)
def test_refuses_damaged_metadata(tmp_path, written, expected):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + written + bytes(40))
    message = error_of(path)
    assert expected in message
    assert len(message) < 500


def test_refuses_a_key_that_is_there_twice(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + entry(7, b"\x01") * 2 + bytes(40))
    assert "metadata 'key' is there twice" in error_of(path)


def test_refuses_more_entries_than_any_model_has(tmp_path):
    path = tmp_path / "m.gguf"
    for counts, expected in (((65_537, 0), "65,537 tensors"), ((0, 65_537), "65,537 entries of metadata")):
        with path.open("wb") as file:
            file.write(b"GGUF" + struct.pack("<IQQ", 3, *counts))
            file.truncate(1 << 24)  # room for all of them, and no disk used
        assert f"{expected}; at most 65,536 are read" in error_of(path)


@pytest.mark.parametrize("type_id", [0, 8])
def test_refuses_arrays_larger_than_any_vocabulary(tmp_path, type_id):
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k"))
        file.write(struct.pack("<IIQ", 9, type_id, (1 << 22) + 1))
        file.truncate(1 << 26)
    assert "metadata 'k' brings the arrays of the file to more than 4,194,304 values" in error_of(path)


def test_long_names_are_shortened_in_errors(tmp_path):
    path = tmp_path / "m.gguf"
    entries = tensor_entry("n" * 1000) * 2
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + entries + bytes(256))
    assert len(error_of(path)) < len(str(path)) + 200


def tensor_entry(name="t", shape=(8,), type_id=0, offset=0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_id, offset)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([tensor_entry(shape=())], "has 0 dimensions"),
        ([tensor_entry(shape=(1,) * 5)], "has 5 dimensions"),
        ([tensor_entry(shape=(8, 0))], "empty shape"),
        ([tensor_entry(shape=(1 << 63, 1 << 63))], "beyond the file"),
        ([tensor_entry(shape=(33,), type_id=2)], "Q4_0 needs multiples of 32"),
        ([tensor_entry(offset=4)], "not a multiple of the alignment 32"),
        ([tensor_entry(offset=1 << 62)], "beyond the file"),
        ([tensor_entry(offset=1 << 62, type_id=99)], "beyond the file"),
        ([tensor_entry(), tensor_entry()], "tensor 't' is there twice"),
        ([tensor_entry("a", shape=(16,)), tensor_entry("b", offset=32)], "tensors 'a' and 'b' overlap"),
    ],
)
def test_refuses_a_damaged_directory(tmp_path, entries, expected):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, len(entries), 0) + b"".join(entries) + bytes(256))
    assert expected in error_of(path)


@pytest.mark.parametrize("alignment", [0, 3, 48, "32", 1 << 40])
def test_refuses_a_senseless_alignment(tmp_path, alignment):
    assert "general.alignment" in error_of(
        write_gguf(tmp_path / "m.gguf", {"general.alignment": alignment}, {})
    )


@pytest.mark.parametrize(("type_id", "name"), [(16, "IQ2_XXS"), (19, "IQ1_S"), (77, "number 77")])
def test_an_unsupported_type_matters_only_when_it_is_used(tmp_path, type_id, name):
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", {}, {"t": Tensor((256,), type_id, bytes(84))}))
    with pytest.raises(ModelLoadError, match=rf"tensor 't' has type {name}; supported are .*Q4_1.*Q6_K"):
        file.weight("t")


def test_a_missing_tensor_is_named(tmp_path):
    with pytest.raises(ModelLoadError, match=r"no tensor 'output_norm\.weight'"):
        GGUFFile(write_gguf(tmp_path / "m.gguf", {}, {})).weight("output_norm.weight")


def test_refuses_what_is_no_file(tmp_path):
    assert "directory" in error_of(tmp_path)
    assert "not there" in error_of(tmp_path / "missing.gguf")


def test_fingerprint_tells_models_apart(tmp_path):
    def fingerprint(metadata, *values):
        return GGUFFile(write_gguf(tmp_path / "m.gguf", metadata, {"t": f32(*values)})).fingerprint()

    first = fingerprint({"a": 1}, 1, 2)
    assert len(first) == 32
    assert fingerprint({"a": 1}, 1, 2) == first
    assert fingerprint({"a": 2}, 1, 2) != first
    assert fingerprint({"a": 1}, 1, 3) != first
    assert fingerprint({"a": 1}, 1, 2, 3) != first
