"""`SafetensorsFile`: a reader of safetensors files that copies no weights and trusts no header.

    header length u64, little-endian | header, a JSON object | the bytes of all tensors, one after another
    header: {"name": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, …}

Offsets count from the end of the header. Tensors neither overlap nor leave holes, so a file that is cut
short or has a tensor of a wrong size is found out before any weight is read.
"""

import hashlib
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelLoadError
from octavo.kernels.weight import Quantization, Weight
from octavo.models.json_document import parse_json
from octavo.models.mapped_file import map_file
from octavo.models.quoting import quote

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 16 << 20
"""Five times the header of the largest models."""
_MAX_TENSORS = 1 << 16
_MAX_DIMENSIONS = 8
_METADATA = "__metadata__"

# A part of each tensor goes into the fingerprint: fine-tunes of one model have equal headers.
_SAMPLED_BYTES = 256

_ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "BOOL": 1, "C64": 8,
        "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8,
    }
)  # fmt: skip
_FLOATS: Mapping[str, Quantization] = MappingProxyType(
    {"F32": Quantization.F32, "F16": Quantization.F16, "BF16": Quantization.BF16}
)


class SafetensorsEntry(NamedTuple):
    """One tensor of a header."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    """From the start of the file [bytes]."""
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)


class SafetensorsFile:
    """An open safetensors file.

    Attributes:
        path: where it lies.
        tensors: by name, in the order of the header.
        metadata: the header's texts.
        num_bytes: size of the file.
    """

    def __init__(self, path: Path) -> None:
        """Map the file and check its header.

        Raises:
            ModelLoadError: not a readable safetensors file, or damaged.
        """
        self.path = path
        self.mapping = map_file(path, kind="safetensors")
        self.num_bytes = len(self.mapping)
        header, self._data_start = _read_header(path, self.mapping)
        self.metadata = _read_metadata(path, header.get(_METADATA))
        self.tensors = {
            name: _read_entry(path, name, value, self._data_start)
            for name, value in header.items()
            if name != _METADATA
        }
        _check_layout(path, self.tensors, self._data_start, self.num_bytes)

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor as a view of the mapped file, which it keeps open."""
        entry = self.tensors[name]
        return np.frombuffer(self.mapping, np.uint8, entry.num_bytes, entry.offset)

    def weight(self, name: str) -> Weight:
        """A tensor of floating-point numbers as a view of the mapped file, which it keeps open.

        Raises:
            ModelLoadError: it holds numbers of another kind.
        """
        entry = self.tensors[name]
        quantization = _FLOATS.get(entry.dtype)
        if quantization is None:
            raise ModelLoadError(
                f"{self.path}: tensor {quote(name)} has type {entry.dtype};"
                f" supported are {', '.join(_FLOATS)}"
            )
        return Weight(name, entry.shape, quantization, self.raw(name))

    def data_sha256(self) -> str:
        """The checksum of all tensors, in hexadecimal; reads the whole file."""
        with memoryview(self.mapping)[self._data_start :] as data:
            checksum = hashlib.sha256(data).hexdigest()
        self.mapping.madvise(mmap.MADV_DONTNEED)
        return checksum

    def fingerprint(self) -> bytes:
        """SHA-256 over the file's size, its header, and the head of every tensor."""
        digest = hashlib.sha256(self.num_bytes.to_bytes(8, "little"))
        digest.update(self.mapping[: self._data_start])
        for entry in self.tensors.values():
            digest.update(self.mapping[entry.offset : entry.offset + min(entry.num_bytes, _SAMPLED_BYTES)])
        return digest.digest()


def _read_header(path: Path, mapping: mmap.mmap) -> tuple[Mapping[str, object], int]:
    """The header, and where the tensors begin."""
    size = len(mapping)
    if size < _LENGTH_BYTES:
        raise ModelLoadError(f"{path}: not a safetensors file: it has {size} bytes")
    length = int.from_bytes(mapping[:_LENGTH_BYTES], "little")
    if length > _MAX_HEADER_BYTES:
        raise ModelLoadError(
            f"{path}: not a safetensors file, or damaged: a header of {length:,} bytes; at most"
            f" {_MAX_HEADER_BYTES:,} are read"
        )
    end = _LENGTH_BYTES + length
    if end > size:
        raise ModelLoadError(
            f"{path}: truncated or damaged: a header of {length:,} bytes in a file of {size:,}"
        )
    text = mapping[_LENGTH_BYTES:end]
    # Counted before it is parsed: a few bytes of brackets become a hundred of Python objects.
    if text.count(b"{") > _MAX_TENSORS or text.count(b"[") > 2 * _MAX_TENSORS:
        raise ModelLoadError(f"{path}: damaged: the header has more than {_MAX_TENSORS:,} tensors")
    return parse_json(text, origin=f"{path}: the header"), end


def _read_metadata(path: Path, value: object) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ModelLoadError(f"{path}: damaged: the header's {_METADATA} must map names to texts")
    return value


def _read_entry(path: Path, name: str, value: object, data_start: int) -> SafetensorsEntry:
    def damaged(problem: str) -> ModelLoadError:
        return ModelLoadError(f"{path}: damaged: tensor {quote(name)} {problem}")

    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise damaged("must have a dtype, a shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise damaged(f"has the unknown dtype {quote(dtype)}")
    if not _is_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise damaged(f"has the impossible shape {quote(shape)}")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise damaged(f"has the impossible data_offsets {quote(offsets)}")
    begin, end = offsets
    expected = math.prod(shape) * _ITEM_BYTES[dtype]
    if end - begin != expected:
        raise damaged(
            f"has {end - begin:,} bytes, but its shape {quote(shape)} in {dtype} needs {expected:,}"
        )
    return SafetensorsEntry(name, tuple(shape), dtype, data_start + begin, expected)


def _is_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 48 for item in value)


def _check_layout(path: Path, tensors: Mapping[str, SafetensorsEntry], start: int, size: int) -> None:
    end, before = start, "the header"
    for entry in sorted(tensors.values(), key=lambda entry: (entry.offset, entry.num_bytes)):
        if entry.offset != end:
            problem = "overlap" if entry.offset < end else "have unused bytes between them"
            raise ModelLoadError(f"{path}: damaged: {before} and tensor {quote(entry.name)} {problem}")
        end, before = entry.offset + entry.num_bytes, f"tensor {quote(entry.name)}"
    if end != size:
        problem = "truncated or damaged" if end > size else "damaged"
        raise ModelLoadError(f"{path}: {problem}: its tensors end at byte {end:,} of {size:,}")
