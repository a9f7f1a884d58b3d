"""`PackedWeights`: quantised weights in the cache folder, made once and mapped from then on.

A packed file is a safetensors file whose tensors are bytes in GGUF's block formats under GGUF's names. Its
metadata holds the version of all this and the SHA-256 of its tensors. It appears complete in one rename;
that it was checked since it was last written is noted beside it, so that a start does not read all of it.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from octavo.errors import ModelLoadError
from octavo.kernels.mapped_pages import MappedPages
from octavo.kernels.quantization import bytes_per_row
from octavo.kernels.weight import Quantization, Weight
from octavo.models.cache_folder import is_verified, mark_verified, marker_of
from octavo.models.safetensors_file import SafetensorsFile
from octavo.models.weight_quantizer import quantized_pieces

VERSION = "1"
"""Of the formats and of how numbers are rounded into them: another one makes all packed files anew."""
SUFFIX = ".safetensors"

_NO_CHECKSUM = "0" * 64

Progress = Callable[[int, int], object]
"""Called with the bytes that are packed, and that will be."""


class PlannedTensor(NamedTuple):
    """A tensor to be packed."""

    name: str
    shape: tuple[int, ...]
    quantization: Quantization

    @property
    def num_bytes(self) -> int:
        """Its size when it is packed."""
        num_rows = 1
        for length in self.shape[:-1]:
            num_rows *= length
        return num_rows * bytes_per_row(self.quantization, self.shape[-1])


class PackedWeights:
    """An open packed file.

    Attributes:
        file: the mapped file.
    """

    def __init__(self, file: SafetensorsFile, plan: Sequence[PlannedTensor]) -> None:
        self.file = file
        self._plan = {tensor.name: tensor for tensor in plan}

    def __contains__(self, name: str) -> bool:
        return name in self._plan

    def weight(self, name: str) -> Weight:
        """One packed tensor as a view of the file."""
        planned = self._plan[name]
        return Weight(name, planned.shape, planned.quantization, self.file.raw(name))


class PackingJob(NamedTuple):
    """A packed file that is to be made."""

    path: Path
    plan: Sequence[PlannedTensor]
    read: Callable[[str], Weight]
    """Gives a tensor in its original form."""
    labels: Mapping[str, str]
    """Texts kept in the file: what it was made of."""
    num_threads: int
    """Threads that quantise."""


def find_packed(path: Path, plan: Sequence[PlannedTensor]) -> PackedWeights | None:
    """The packed weights at ``path``, if they are there as they were written.

    The file is read if nobody has done so since it was last written.
    """
    try:
        file = SafetensorsFile(path)
    except ModelLoadError:  # not there, or damaged
        return None
    checksum = file.metadata.get("sha256", "")
    found = {name: entry.num_bytes for name, entry in file.tensors.items()}
    if file.metadata.get("version") != VERSION or found != {t.name: t.num_bytes for t in plan}:
        return None
    if not is_verified(path, checksum) and file.data_sha256() != checksum:
        return None
    with contextlib.suppress(OSError):  # a folder that is only for reading
        if is_verified(path, checksum):
            os.utime(marker_of(path))  # when it was used last
        else:
            mark_verified(path, checksum)
    return PackedWeights(file, plan)


def pack(job: PackingJob, progress: Progress) -> PackedWeights:
    """Make a packed file; it appears complete or not at all. Only one process may do so at a time.

    Raises:
        ModelLoadError: a weight is not finite.
        OSError: the file cannot be stored.
    """
    partial = job.path.with_suffix(".partial")
    try:
        checksum = _write(partial, job, progress)
        partial.replace(job.path)
    finally:
        partial.unlink(missing_ok=True)
    mark_verified(job.path, checksum)
    return PackedWeights(SafetensorsFile(job.path), job.plan)


def _write(path: Path, job: PackingJob, progress: Progress) -> str:
    """Write the file, and return the checksum of its tensors."""
    digest, done = hashlib.sha256(), 0
    total = sum(tensor.num_bytes for tensor in job.plan)
    with path.open("wb") as sink, ThreadPoolExecutor(job.num_threads) as threads:
        sink.write(_header(job, _NO_CHECKSUM))
        for tensor in job.plan:
            weight = job.read(tensor.name)
            for piece in quantized_pieces(weight, tensor.quantization, threads):
                digest.update(piece.data)
                sink.write(piece.data)
                done += piece.nbytes
                progress(done, total)
            MappedPages([weight]).release()
        sink.seek(0)
        sink.write(_header(job, digest.hexdigest()))
        sink.flush()
        os.fsync(sink.fileno())
    return digest.hexdigest()


def _header(job: PackingJob, checksum: str) -> bytes:
    """Length and header; as long with one checksum as with another."""
    header: dict[str, object] = {"__metadata__": {**job.labels, "version": VERSION, "sha256": checksum}}
    end = 0
    for tensor in job.plan:
        begin, end = end, end + tensor.num_bytes
        header[tensor.name] = {"dtype": "U8", "shape": [tensor.num_bytes], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64 + 56)  # tensors begin on a cache line
    return len(text).to_bytes(8, "little") + text
