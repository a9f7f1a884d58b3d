"""A GGUF model in one file, or split over several: ``name-00001-of-00003.gguf``."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.kernels.weight import Weight
from octavo.models.gguf import GGUFFile, TensorEntry
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.source import ModelSource

_PART_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_MAX_PARTS = 1024


class GGUFParts:
    """The parts of one model; implements `octavo.models.source.ModelSource`.

    Attributes:
        path: of the first part.
        metadata: of the first part; the others only say which part they are.
        tensors: of all parts.
        parts: in order.
    """

    def __init__(self, parts: Sequence[GGUFFile]) -> None:
        """Join opened parts.

        Raises:
            ModelLoadError: a tensor is in two of them, or one is missing.
        """
        self.parts = parts
        self.path: Path = parts[0].path
        self.metadata: Metadata = parts[0].metadata
        self._part_of: dict[str, GGUFFile] = {}
        for part in parts:
            for name in part.tensors:
                if name in self._part_of:
                    raise ModelLoadError(f"{part.path}: tensor {quote(name)} is in an earlier part, too")
                self._part_of[name] = part
        self._check_count()

    @property
    def tensors(self) -> Mapping[str, TensorEntry]:
        """All tensors by name."""
        return {name: part.tensors[name] for name, part in self._part_of.items()}

    @property
    def files(self) -> tuple[Path, ...]:
        """The parts' files."""
        return tuple(part.path for part in self.parts)

    def weight(self, name: str) -> Weight:
        """The tensor of this name as a view of a mapped file, which it keeps open.

        Raises:
            ModelLoadError: there is no such tensor, or its type is not supported.
        """
        return self._part_of.get(name, self.parts[0]).weight(name)

    def fingerprint(self) -> bytes:
        """SHA-256 over the fingerprints of all parts."""
        return hashlib.sha256(b"".join(part.fingerprint() for part in self.parts)).digest()

    def _check_count(self) -> None:
        expected = self.metadata.count("split.tensors.count", default=len(self._part_of), minimum=0)
        if expected != len(self._part_of):
            raise ModelLoadError(
                f"{self.path}: the parts have {len(self._part_of):,} tensors, there should be {expected:,}"
            )


def open_gguf(path: Path) -> ModelSource:
    """The model that a file holds, or of which it is a part; the other parts lie beside it.

    Raises:
        ModelLoadError: a part is missing or damaged, or belongs to another model.
    """
    file = GGUFFile(path)
    num_parts = file.metadata.count("split.count", default=1, minimum=0)
    if num_parts <= 1:
        return file
    return GGUFParts(
        [_open_part(part, number, num_parts) for number, part in enumerate(_part_paths(path, num_parts))]
    )


def _part_paths(path: Path, num_parts: int) -> list[Path]:
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match[3]) != num_parts or num_parts > _MAX_PARTS:
        raise ModelLoadError(
            f"{path}: the file is one of {num_parts:,} parts of a model, which must be named as in"
            " name-00001-of-00003.gguf"
        )
    names = [f"{match[1]}-{number:05}-of-{num_parts:05}.gguf" for number in range(1, num_parts + 1)]
    return [path.with_name(name) for name in names]


def _open_part(path: Path, number: int, num_parts: int) -> GGUFFile:
    file = GGUFFile(path)
    found = file.metadata.count("split.no", minimum=0), file.metadata.count("split.count", minimum=0)
    if found != (number, num_parts):
        raise ModelLoadError(
            f"{path}: says that it is part {found[0] + 1} of {found[1]},"
            f" its name says {number + 1} of {num_parts}"
        )
    return file
