"""`HuggingFaceFolder`: a folder with ``config.json`` and safetensors files as a `ModelSource`."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from octavo.errors import ModelLoadError
from octavo.kernels.quantization import dequantize
from octavo.kernels.weight import Quantization, Weight
from octavo.models.gguf_metadata import Metadata
from octavo.models.huggingface_config import Config
from octavo.models.huggingface_names import gguf_name
from octavo.models.json_document import read_json_file
from octavo.models.quoting import quote
from octavo.models.safetensors_file import SafetensorsFile

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
_SINGLE_FILE = "model.safetensors"
_MAX_CONFIG_BYTES = 1 << 20
_MAX_INDEX_BYTES = 16 << 20
_MAX_SHARDS = 1024
_MAX_TENSORS = 1 << 17
"""Of all files together; the largest mixtures of experts have some 90,000."""


class FolderTensor(NamedTuple):
    """A tensor of the folder."""

    file: SafetensorsFile
    stored_name: str
    """Its name there."""
    shape: tuple[int, ...]


class HuggingFaceFolder:
    """An open folder; implements `octavo.models.source.ModelSource`.

    Attributes:
        path: the folder.
        config: ``config.json``.
        metadata: the same under GGUF's keys.
        tensors: by GGUF's names.
        files: the safetensors files.
    """

    def __init__(self, path: Path) -> None:
        """Map the files and read their headers.

        Raises:
            ModelLoadError: a file is missing or damaged, or describes a model that is not supported.
        """
        self.path = path
        if not (path / CONFIG_FILE).is_file():
            raise ModelLoadError(f"{path}: {_what_else(path)}")
        document = read_json_file(path / CONFIG_FILE, max_bytes=_MAX_CONFIG_BYTES)
        self.config = Config(document, path / CONFIG_FILE)
        self.metadata: Metadata = self.config.metadata(name=path.resolve().name)
        self._files = _open_files(path)
        self.files = [file.path for file in self._files]
        self.tensors = self._find_tensors()

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table.

        Raises:
            ModelLoadError: there is none.
        """
        embedding = self._tensor("token_embd.weight")
        return embedding.shape[0] if embedding.shape else 0

    def weight(self, name: str) -> Weight:
        """The tensor of this name: a matrix as a view of the mapped file, a vector as a float32 copy.

        Raises:
            ModelLoadError: there is no such tensor, or its type is not supported.
        """
        tensor = self._tensor(name)
        stored = tensor.file.weight(tensor.stored_name)
        if len(stored.shape) != 1:
            return Weight(name, stored.shape, stored.quantization, stored.raw)
        values = dequantize(stored)
        if name.endswith("norm.weight") and self.config.family.architecture.startswith("gemma"):
            values = values + np.float32(1)
        return Weight(name, stored.shape, Quantization.F32, values.astype("<f4").view(np.uint8))

    def fingerprint(self) -> bytes:
        """SHA-256 over the configuration and the fingerprints of all files."""
        digest = hashlib.sha256((self.path / CONFIG_FILE).read_bytes())
        for file in self._files:
            digest.update(file.fingerprint())
        return digest.digest()

    def _tensor(self, name: str) -> FolderTensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ModelLoadError(
                f"{self.path}: the folder has no tensor {quote(name)}, which this model needs"
            )
        return tensor

    def _find_tensors(self) -> dict[str, FolderTensor]:
        found: dict[str, FolderTensor] = {}
        for file in self._files:
            for entry in file.tensors.values():
                name = gguf_name(entry.name, self.config.family.architecture)
                if name is None:
                    continue
                if name in found:
                    raise ModelLoadError(f"{file.path}: tensor {quote(entry.name)} is there twice")
                found[name] = FolderTensor(file, entry.name, entry.shape)
        # A head that is tied may be stored all the same, as a copy.
        if self.config.typed.flag("tie_word_embeddings", default=False):
            found.pop("output.weight", None)
        elif "output.weight" not in found:
            raise ModelLoadError(f"{self.path}: the folder has no output head (lm_head.weight)")
        return found


def _what_else(folder: Path) -> str:
    """What a folder without a configuration is, as far as that can be told, and what to do."""
    if (folder / "adapter_config.json").is_file():
        return "a LoRA adapter; give its base as the model, and this folder as --lora NAME=FOLDER"
    if found := sorted(folder.glob("*.gguf")):
        return f"the folder has no {CONFIG_FILE}; give a GGUF file by its name, such as {found[0]}"
    return (
        f"the folder has no {CONFIG_FILE}; give one with {CONFIG_FILE} and safetensors files, or a .gguf file"
    )


def _open_files(folder: Path) -> list[SafetensorsFile]:
    files: list[SafetensorsFile] = []
    num_tensors = 0
    for path in _weight_files(folder):
        files.append(SafetensorsFile(path))
        num_tensors += len(files[-1].tensors)
        if num_tensors > _MAX_TENSORS:
            raise ModelLoadError(f"{path}: with this file there are more than {_MAX_TENSORS:,} tensors")
    return files


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    if index.is_file():
        return _shards(index)
    single = folder / _SINGLE_FILE
    found = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise ModelLoadError(f"{folder}: has {len(found)} safetensors files and no {INDEX_FILE}")
    pickles = any(file.suffix in (".bin", ".pt", ".pth") for file in folder.iterdir())
    reason = "holds its weights as pickles, which are never read" if pickles else "has no safetensors files"
    raise ModelLoadError(f"{folder}: {reason}; get the model in safetensors or as a GGUF file")


def _shards(index: Path) -> list[Path]:
    """The files that an index names; all of them lie beside it."""
    weight_map = read_json_file(index, max_bytes=_MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise ModelLoadError(f"{index}: must have a weight_map")
    names = set(_texts(weight_map.values(), index))
    if len(names) > _MAX_SHARDS:
        raise ModelLoadError(f"{index}: names {len(names):,} files; at most {_MAX_SHARDS:,} are read")
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelLoadError(f"{index}: {quote(name)} is no safetensors file in this folder")
    missing = sorted(name for name in names if not (index.parent / name).is_file())
    if missing:
        raise ModelLoadError(
            f"{index.parent}: {len(missing)} of {len(names)} files are missing, the first is"
            f" {quote(missing[0])}; fetch the folder again"
        )
    return [index.parent / name for name in sorted(names)]


def _texts(values: Iterable[object], index: Path) -> Iterable[str]:
    for value in values:
        if not isinstance(value, str):
            raise ModelLoadError(f"{index}: the weight_map must map names to files, found {quote(value)}")
        yield value
