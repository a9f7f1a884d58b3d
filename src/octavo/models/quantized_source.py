"""`QuantizedSource`: a model whose matrices are quantised when it is loaded."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from octavo.config import QuantizationName
from octavo.errors import ModelLoadError
from octavo.kernels.weight import Weight
from octavo.models.cache_folder import only_process
from octavo.models.gguf_metadata import Metadata
from octavo.models.packed_cache import make_room, packed_folder
from octavo.models.packed_weights import SUFFIX, PackedWeights, PackingJob, PlannedTensor, find_packed, pack
from octavo.models.source import ModelSource, TensorShape
from octavo.models.weight_plan import planned_quantization

_WAITING = "Another process is packing weights; waiting for it."


class QuantizedSource:
    """Another source with packed weights in the place of its own; implements `ModelSource`.

    Attributes:
        path: of the other source.
        metadata: of the other source.
        tensors: of the other source.
        files: of the other source.
    """

    def __init__(self, source: ModelSource, kind: QuantizationName, packed: PackedWeights) -> None:
        self._source = source
        self._kind = kind
        self._packed = packed
        self.path: Path = source.path
        self.metadata: Metadata = source.metadata
        self.tensors: Mapping[str, TensorShape] = source.tensors
        self.files = source.files

    def weight(self, name: str) -> Weight:
        """The packed tensor if there is one, else the stored one."""
        return self._packed.weight(name) if name in self._packed else self._source.weight(name)

    def fingerprint(self) -> bytes:
        """SHA-256 over the other source's fingerprint and the kind of quantisation."""
        return hashlib.sha256(self._source.fingerprint() + self._kind.encode()).digest()


def plan_tensors(source: ModelSource, kind: QuantizationName) -> list[PlannedTensor]:
    """The tensors that are to be quantised."""
    planned = (
        (name, tensor.shape, planned_quantization(name, tensor.shape, kind))
        for name, tensor in source.tensors.items()
    )
    return [PlannedTensor(name, shape, found) for name, shape, found in planned if found]


def packed_name(source: ModelSource, kind: QuantizationName) -> str:
    """Name of the packed file: readable, and another one if the model's files are changed."""
    digest = hashlib.sha256(source.fingerprint())
    for file in source.files:
        status = file.stat()
        digest.update(f"{status.st_size} {status.st_mtime_ns}\n".encode())
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", source.path.resolve().name)[:60]
    return f"{readable}-{kind}-{digest.hexdigest()[:16]}{SUFFIX}"


def quantize_source(
    source: ModelSource, kind: QuantizationName, *, cache: Path, num_threads: int, progress: bool
) -> ModelSource:
    """The source with its matrices quantised, from the cache folder if they were packed before.

    Of several processes one packs and the others wait for it.

    Args:
        source: as it is stored.
        kind: what into.
        cache: the cache folder.
        num_threads: threads that quantise.
        progress: show a bar on standard error while they do.

    Raises:
        ModelLoadError: the packed weights cannot be stored, or a weight is not finite.
    """
    folder, plan = packed_folder(cache), plan_tensors(source, kind)
    path = folder / packed_name(source, kind)
    labels = {"source": str(source.path.resolve()), "quantization": kind}
    job = PackingJob(path, plan, source.weight, labels, num_threads)
    try:
        packed = find_packed(path, plan)
        if packed is None:
            folder.mkdir(parents=True, exist_ok=True)
            with only_process(folder / "pack.lock", waiting=_WAITING if progress else None):
                packed = find_packed(path, plan) or _pack(job, source.path.resolve().name, progress=progress)
    except OSError as error:
        raise ModelLoadError(
            f"cannot store packed weights in {folder}: {error.strerror or error}; make room with"
            " `octavo models clean`, set XDG_CACHE_HOME to another disk, or choose --quantization none"
        ) from None
    return QuantizedSource(source, kind, packed)


def _pack(job: PackingJob, name: str, *, progress: bool) -> PackedWeights:
    from octavo.models.byte_progress import byte_progress  # the second start needs no bar

    total = sum(tensor.num_bytes for tensor in job.plan)
    make_room(job.path.parent, total)
    if shutil.disk_usage(job.path.parent).free < total:  # said now, not after minutes of packing
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with byte_progress(enabled=progress) as bar:
        task = bar.add_task(
            f"Packing {name} at {job.labels['quantization'].removeprefix('int')} bits", total=total
        )
        return pack(job, lambda done, _total: bar.update(task, completed=done))
