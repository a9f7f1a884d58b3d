"""`GGUFFile`: a reader of GGUF files, versions 2 and 3, that copies no weights.

The file is memory-mapped. The header, metadata and tensor directory are parsed once, with every count,
length and offset checked against the end of the file before it is used, so that a damaged file costs
one clear error and never the time or memory that it claims. The layout is little-endian:

    "GGUF" | version u32 | tensor count u64 | metadata count u64
    metadata: key string | value type u32 | value                  (a string is: length u64 | UTF-8 bytes)
    tensors:  name string | dimensions u32 | each dimension u64 | type u32 | offset u64
    padding to the alignment | tensor bytes, each tensor at its offset from here
"""

import hashlib
import itertools
import math
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from octavo.errors import ModelLoadError
from octavo.kernels.quantization import BLOCK_LAYOUTS, bytes_per_row
from octavo.kernels.weight import Quantization, Weight
from octavo.models.ggml_types import SUPPORTED, type_name
from octavo.models.gguf_cursor import Cursor
from octavo.models.gguf_metadata import Metadata, MetadataValue
from octavo.models.mapped_file import map_file
from octavo.models.quoting import quote

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4

# The largest models have some thousand tensors and a hundred metadata entries.
_MOST_ENTRIES = 1 << 16

_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS: dict[int, tuple[struct.Struct, np.dtype[np.generic]]] = {
    type_id: (struct.Struct(f"<{code}"), np.dtype(f"<{code}"))
    for type_id, code in {
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d",
    }.items()
}  # fmt: skip

# The shortest metadata entry is an empty key and one byte; the shortest tensor entry has one dimension.
_SHORTEST_ENTRY = 8 + 4 + 1
_SHORTEST_TENSOR = 8 + 4 + 8 + 4 + 8

# A part of each tensor goes into the fingerprint: fine-tunes of one model have equal directories.
_SAMPLED_BYTES = 256


class TensorEntry(NamedTuple):
    """One line of the tensor directory."""

    name: str
    shape: tuple[int, ...]
    """(rows, columns), or (columns,); GGUF writes them the other way round."""
    type_id: int
    offset: int
    """From the start of the file [bytes]."""

    @property
    def num_elements(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)

    @property
    def quantization(self) -> Quantization | None:
        """How the numbers are stored; ``None`` if the type is not supported."""
        return SUPPORTED.get(self.type_id)

    @property
    def num_bytes(self) -> int | None:
        """Size in the file; ``None`` if the type is not supported, so that nobody knows."""
        quantization = self.quantization
        if quantization is None:
            return None
        return math.prod(self.shape[:-1]) * bytes_per_row(quantization, self.shape[-1])


class GGUFFile:
    """An open GGUF file.

    Attributes:
        path: where it lies.
        metadata: the key-value section.
        tensors: the tensor directory by name, in file order.
        num_bytes: size of the file.
    """

    def __init__(self, path: Path) -> None:
        """Map and parse the file.

        Raises:
            ModelLoadError: not a readable file, or damaged; the message says where.
        """
        self.path = path
        self._map = map_file(path, kind="GGUF")
        self.num_bytes = len(self._map)
        cursor = Cursor(path, self._map)
        num_tensors, num_entries = _read_header(cursor)
        self.metadata = Metadata(path, _read_metadata(cursor, num_entries))
        self.tensors = _read_directory(cursor, num_tensors, _alignment(self.metadata))
        self._directory_end = cursor.position

    @property
    def files(self) -> tuple[Path, ...]:
        """The file itself."""
        return (self.path,)

    def weight(self, name: str) -> Weight:
        """The tensor of this name as a view of the mapped file, which it keeps open.

        Raises:
            ModelLoadError: there is no such tensor, or its type is not supported.
        """
        entry = self.tensors.get(name)
        if entry is None:
            raise ModelLoadError(f"{self.path}: the file has no tensor {quote(name)}, which this model needs")
        quantization, num_bytes = entry.quantization, entry.num_bytes
        if quantization is None or num_bytes is None:
            raise ModelLoadError(
                f"{self.path}: tensor {quote(name)} has type {type_name(entry.type_id)};"
                f" supported are {', '.join(SUPPORTED.values())}"
            )
        raw = np.frombuffer(self._map, np.uint8, num_bytes, entry.offset)
        return Weight(name, entry.shape, quantization, raw)

    def fingerprint(self) -> bytes:
        """SHA-256 over the file's size, everything before the weights, and the head of every tensor."""
        digest = hashlib.sha256(self.num_bytes.to_bytes(8, "little"))
        digest.update(self._map[: self._directory_end])
        for entry in self.tensors.values():
            digest.update(self._map[entry.offset : entry.offset + _SAMPLED_BYTES])
        return digest.digest()


def _read_header(cursor: Cursor) -> tuple[int, int]:
    """The number of tensors and of metadata entries."""
    magic = cursor.buffer[:4]
    if magic != _MAGIC:
        raise ModelLoadError(
            f"{cursor.path}: not a GGUF file: it starts with {magic!r} instead of {_MAGIC!r}"
        )
    cursor.position = len(_MAGIC)
    version = cursor.u32("the version")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        kind = "the big-endian form" if swapped in _VERSIONS else f"version {version}"
        raise ModelLoadError(
            f"{cursor.path}: {kind} of GGUF is not supported; versions 2 and 3, little-endian, are"
        )
    num_tensors, num_entries = cursor.u64("the tensor count"), cursor.u64("the metadata count")
    _check_count(cursor, num_tensors, "tensors")
    _check_count(cursor, num_entries, "entries of metadata")
    cursor.expect(num_tensors * _SHORTEST_TENSOR, f"a directory of {num_tensors:,} tensors")
    cursor.expect(num_entries * _SHORTEST_ENTRY, f"metadata of {num_entries:,} entries")
    return num_tensors, num_entries


def _check_count(cursor: Cursor, count: int, what: str) -> None:
    if count > _MOST_ENTRIES:
        raise cursor.error(f"damaged: the file claims {count:,} {what}; at most {_MOST_ENTRIES:,} are read")


def _read_metadata(cursor: Cursor, num_entries: int) -> dict[str, MetadataValue]:
    values: dict[str, MetadataValue] = {}
    for index in range(num_entries):
        key = cursor.name(f"the key of metadata entry {index}")
        if key in values:
            raise cursor.error(f"metadata {quote(key)} is there twice")
        values[key] = _read_value(cursor, f"metadata {quote(key)}")
    return values


def _read_value(cursor: Cursor, what: str) -> MetadataValue:
    type_id = cursor.u32(f"the type of {what}")
    if type_id == _STRING:
        return cursor.string(what)
    if type_id == _ARRAY:
        return _read_array(cursor, what)
    if type_id in _NUMBERS:
        return cursor.unpack(_NUMBERS[type_id][0], what)
    raise cursor.error(f"{what} has the unknown value type {type_id}")


def _read_array(cursor: Cursor, what: str) -> MetadataValue:
    type_id = cursor.u32(f"the element type of {what}")
    count = cursor.u64(f"the length of {what}")
    if type_id == _STRING:
        return cursor.strings(count, what)
    if type_id in _NUMBERS:
        return cursor.numbers(_NUMBERS[type_id][1], count, what)
    kind = "arrays within an array are" if type_id == _ARRAY else f"element type {type_id} is"
    raise cursor.error(f"{what}: {kind} not supported")


def _alignment(metadata: Metadata) -> int:
    alignment = metadata.count("general.alignment", default=_DEFAULT_ALIGNMENT)
    if alignment & (alignment - 1):
        raise ModelLoadError(f"{metadata.path}: general.alignment must be a power of two, found {alignment}")
    return alignment


def _read_directory(cursor: Cursor, num_tensors: int, alignment: int) -> dict[str, TensorEntry]:
    entries = [_read_entry(cursor, index) for index in range(num_tensors)]
    start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorEntry] = {}
    for entry in entries:
        if entry.name in tensors:
            raise cursor.error(f"tensor {quote(entry.name)} is there twice")
        tensors[entry.name] = _placed(cursor, entry, start, alignment)
    _check_overlap(cursor.path, tensors)
    return tensors


def _read_entry(cursor: Cursor, index: int) -> TensorEntry:
    name = cursor.name(f"the name of tensor {index}")
    num_dimensions = cursor.u32(f"the dimensions of tensor {quote(name)}")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(
            f"tensor {quote(name)} has {num_dimensions:,} dimensions; 1 to {_MAX_DIMENSIONS} are possible"
        )
    dimensions = [cursor.u64(f"the shape of tensor {quote(name)}") for _ in range(num_dimensions)]
    type_id = cursor.u32(f"the type of tensor {quote(name)}")
    offset = cursor.u64(f"the offset of tensor {quote(name)}")
    return TensorEntry(name, tuple(reversed(dimensions)), type_id, offset)


def _placed(cursor: Cursor, entry: TensorEntry, start: int, alignment: int) -> TensorEntry:
    """The entry with its offset counted from the start of the file, once it is known to lie within it."""
    if problem := _shape_problem(entry):
        raise ModelLoadError(f"{cursor.path}: tensor {quote(entry.name)} {problem}")
    placed = entry._replace(offset=start + entry.offset)
    end = placed.offset + (placed.num_bytes or 0)
    if entry.offset % alignment:
        problem = f"lies at offset {entry.offset:,}, not a multiple of the alignment {alignment}"
    elif end > cursor.size:
        problem = f"ends at byte {end:,}, beyond the file's {cursor.size:,}: truncated or damaged"
    if problem:
        raise ModelLoadError(f"{cursor.path}: tensor {quote(entry.name)} {problem}")
    return placed


def _shape_problem(entry: TensorEntry) -> str | None:
    if not entry.num_elements:
        return f"has an empty shape {entry.shape}"
    block = BLOCK_LAYOUTS[entry.quantization].num_elements if entry.quantization else 1
    if entry.shape[-1] % block:
        return f"has rows of {entry.shape[-1]:,}; {entry.quantization} needs multiples of {block}"
    return None


def _check_overlap(path: Path, tensors: dict[str, TensorEntry]) -> None:
    ordered = sorted(tensors.values(), key=lambda entry: entry.offset)
    for entry, following in itertools.pairwise(ordered):
        if entry.offset + (entry.num_bytes or 0) > following.offset:
            raise ModelLoadError(f"{path}: tensors {quote(entry.name)} and {quote(following.name)} overlap")
