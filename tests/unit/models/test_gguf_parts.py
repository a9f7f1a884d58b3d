import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf_writer import Tensor, write_gguf

from octavo.errors import ModelLoadError
from octavo.kernels.program import Linear
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_parts import open_gguf
from octavo.models.loaded import load_model


def split(model: Path, folder: Path, num_parts: int = 3) -> list[Path]:
    """The same model in several files; the first has all of the metadata."""
    file = GGUFFile(model)
    names = [*file.tensors]
    paths = []
    for number in range(num_parts):
        metadata = {
            **(file.metadata.values if number == 0 else {}),
            "split.no": np.uint16(number),
            "split.count": np.uint16(num_parts),
            "split.tensors.count": np.int32(len(names)),
        }
        tensors = {
            name: Tensor(
                file.tensors[name].shape, file.tensors[name].type_id, file.weight(name).raw.tobytes()
            )
            for name in names[number::num_parts]
        }
        paths.append(folder / f"tiny-{number + 1:05}-of-{num_parts:05}.gguf")
        write_gguf(paths[-1], metadata, tensors)
    return paths


@pytest.fixture
def parts(tiny_llama, tmp_path):
    return split(tiny_llama(), tmp_path)


def error_of(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        open_gguf(path)
    return str(caught.value)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_whole_model(tiny_llama, parts, given):
    whole, model = load_model(tiny_llama()), load_model(parts[given])
    assert model.path == parts[0]
    assert model.spec == whole.spec
    for ours, theirs in zip(model.program.ops, whole.program.ops, strict=True):
        if isinstance(ours, Linear):
            for part, expected in zip(ours.parts, theirs.parts, strict=True):
                assert np.array_equal(part.raw, expected.raw)


def test_fingerprints_of_all_parts_count(tiny_llama, tmp_path):
    prints = set()
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        prints.add(open_gguf(split(tiny_llama(seed=seed), folder)[0]).fingerprint())
    assert len(prints) == 2


def test_a_missing_part_is_named(parts):
    parts[1].unlink()
    assert f"{parts[1]}: the GGUF file is not there" in error_of(parts[0])


def test_a_part_in_the_wrong_place_is_named(parts):
    shutil.copy(parts[2], parts[1])
    assert f"{parts[1]}: says that it is part 3 of 3, its name says 2 of 3" in error_of(parts[0])


def test_a_part_of_another_name_says_what_names_are_like(parts):
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    assert "must be named as in name-00001-of-00003.gguf" in error_of(renamed)


def test_a_tensor_in_two_parts_is_refused(tiny_llama, parts):
    file = GGUFFile(parts[0])
    name, entry = next(iter(file.tensors.items()))
    tensors = {name: Tensor(entry.shape, entry.type_id, file.weight(name).raw.tobytes())}
    write_gguf(parts[1], {"split.no": np.uint16(1), "split.count": np.uint16(3)}, tensors)
    assert "is in an earlier part, too" in error_of(parts[0])


def test_the_number_of_tensors_must_be_right(tiny_llama, parts):
    write_gguf(parts[1], {"split.no": np.uint16(1), "split.count": np.uint16(3)}, {})
    assert "there should be" in error_of(parts[0])
