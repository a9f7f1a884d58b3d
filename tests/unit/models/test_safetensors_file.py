import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors_writer import bfloat16_bits, write_raw, write_safetensors

from octavo.errors import ModelLoadError
from octavo.kernels.quantization import dequantize
from octavo.kernels.weight import Quantization
from octavo.models.safetensors_file import SafetensorsFile

RNG = np.random.default_rng(7)
MATRIX = RNG.standard_normal((3, 5)).astype(np.float32)


def entry(dtype: object = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def header(**entries: object) -> bytes:
    return json.dumps(entries).encode()


def error_of(path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        SafetensorsFile(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert str(path) in message
    return message


def test_reads_what_the_safetensors_package_writes(tmp_path):
    arrays = {"f32": MATRIX, "f16": MATRIX.astype(np.float16), "odd": np.arange(3, dtype=np.uint8)}
    path = tmp_path / "m.safetensors"
    safetensors.numpy.save_file(arrays, path, metadata={"format": "np"})
    file = SafetensorsFile(path)
    assert file.metadata == {"format": "np"}
    assert set(file.tensors) == set(arrays)
    for name in ("f32", "f16"):
        weight = file.weight(name)
        assert weight.shape == (3, 5)
        assert np.array_equal(dequantize(weight), arrays[name].astype(np.float32))


def test_the_safetensors_package_reads_what_the_tests_write(tmp_path):
    path = write_safetensors(tmp_path / "m.safetensors", {"a": MATRIX, "b": np.arange(4)})
    assert np.array_equal(safetensors.numpy.load_file(path)["a"], MATRIX)


def test_bfloat16_is_exact_to_the_bit(tmp_path):
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    file = SafetensorsFile(
        write_safetensors(tmp_path / "m.safetensors", {"x": np.zeros(1, np.uint8), "w": bits})
    )
    weight = file.weight("w")
    assert weight.quantization is Quantization.BF16
    assert np.array_equal(bfloat16_bits(dequantize(weight)), bits)


def test_a_weight_is_a_view_of_the_file_that_outlives_the_reader(tmp_path):
    weight = SafetensorsFile(write_safetensors(tmp_path / "m.safetensors", {"w": MATRIX})).weight("w")
    assert not weight.raw.flags.owndata
    assert not weight.raw.flags.writeable
    assert np.array_equal(dequantize(weight), MATRIX)


def test_other_kinds_of_numbers_are_no_weights(tmp_path):
    file = SafetensorsFile(write_safetensors(tmp_path / "m.safetensors", {"ids": np.arange(4)}))
    with pytest.raises(ModelLoadError, match="tensor 'ids' has type I64; supported are F32, F16, BF16"):
        file.weight("ids")


def test_the_fingerprint_tells_fine_tunes_apart(tmp_path):
    other = MATRIX.copy()
    other[0, 0] += 1
    paths = [
        write_safetensors(tmp_path / f"{index}.safetensors", {"w": array})
        for index, array in enumerate((MATRIX, other, MATRIX))
    ]
    first, second, third = (SafetensorsFile(path).fingerprint() for path in paths)
    assert first == third != second


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a safetensors file"),
        (b"\x05", "it has 1 bytes"),
        ((1 << 63).to_bytes(8, "little") + b"{}", "a header of 9,223,372,036,854,775,808 bytes"),
        ((9).to_bytes(8, "little") + b"{}", "a header of 9 bytes in a file of 10"),
        ((2).to_bytes(8, "little") + b"[]", "must hold a JSON object, found a list"),
        ((2).to_bytes(8, "little") + b"{{", "not valid JSON"),
        ((2).to_bytes(8, "little") + b"\xff\xff", "not UTF-8"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path, content, problem):
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    assert problem in error_of(path)


@pytest.mark.parametrize(
    ("entries", "content", "problem"),
    [
        ({"a": entry("F33")}, 4, "tensor 'a' has the unknown dtype 'F33'"),
        ({"a": entry(["F32"])}, 4, "unknown dtype"),
        ({"a": entry(shape=[-1])}, 4, "impossible shape"),
        ({"a": entry(shape=[1.0])}, 4, "impossible shape"),
        ({"a": entry(shape=[True])}, 4, "impossible shape"),
        ({"a": entry(shape=[1] * 9)}, 4, "impossible shape"),
        ({"a": entry(shape=[1 << 50])}, 4, "impossible shape"),
        ({"a": entry(shape=[1 << 40, 1 << 40], offsets=[0, 4])}, 4, "has 4 bytes, but"),
        ({"a": entry(offsets=[0])}, 4, "impossible data_offsets"),
        ({"a": entry(offsets=[4, 0])}, 4, "impossible data_offsets"),
        ({"a": entry(shape=[2])}, 4, "has 4 bytes, but its shape [2] in F32 needs 8"),
        ({"a": {"dtype": "F32"}}, 0, "must have a dtype, a shape and data_offsets"),
        ({"a": 7}, 0, "must have a dtype, a shape and data_offsets"),
        ({"a": entry(), "b": entry()}, 4, "overlap"),
        ({"a": entry(), "b": entry(offsets=[8, 12])}, 12, "have unused bytes between them"),
        ({"a": entry(offsets=[4, 8])}, 8, "have unused bytes between them"),
        ({"a": entry()}, 3, "truncated or damaged: its tensors end at byte"),
        ({"a": entry()}, 5, "damaged: its tensors end at byte"),
        ({"__metadata__": {"a": 1}}, 0, "must map names to texts"),
        ({"__metadata__": []}, 0, "must map names to texts"),
        ({"a" * 5000: entry("X")}, 4, "unknown dtype"),
        ({"\x1b[2J\n": entry("X")}, 4, "unknown dtype"),
    ],
)
def test_damage_is_one_line(tmp_path, entries, content, problem):
    assert problem in error_of(write_raw(tmp_path / "m.safetensors", header(**entries), bytes(content)))


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    one = json.dumps(entry()).encode()
    path = write_raw(tmp_path / "m.safetensors", b'{"a":' + one + b',"a":' + one + b"}", bytes(4))
    assert "the key 'a' is there twice" in error_of(path)


@pytest.mark.parametrize(
    "text", [b"[" * 5_000_000, b'{"a":' * 60_000, b'{"a":[' + b"[]," * 4_000_000 + b"[]]}", b"1" * 6000]
)
def test_a_header_that_would_blow_up_is_refused_before_it_is_parsed(tmp_path, text):
    error_of(write_raw(tmp_path / "m.safetensors", text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4)
    ),
    max_leaves=8,
)
OFFSETS = st.integers(-2, 40)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "U8", "F8_E4M3", ""]) | JSON,
        "shape": st.lists(OFFSETS, max_size=3) | JSON,
        "data_offsets": st.lists(OFFSETS, min_size=2, max_size=2) | JSON,
    }
)


@settings(deadline=None, max_examples=200)
@given(
    entries=st.dictionaries(st.text(max_size=4), ENTRIES | JSON, max_size=4), content=st.binary(max_size=48)
)
def test_any_header_is_read_or_refused_in_one_line(tmp_path_factory, entries, content):
    path = write_raw(
        tmp_path_factory.getbasetemp() / "fuzz.safetensors", json.dumps(entries).encode(), content
    )
    read_everything(path)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_any_damage_to_a_good_file_is_read_or_refused_in_one_line(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    tensors = {"w": MATRIX, "half": MATRIX.astype(np.float16), "ids": np.arange(3)}
    content = bytearray(write_safetensors(path, tensors).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    read_everything(path)


def read_everything(path) -> None:
    try:
        file = SafetensorsFile(path)
        for name in file.tensors:
            dequantize(file.weight(name))
        file.fingerprint()
    except ModelLoadError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert len(str(error)) < 800  # noqa: PT017
