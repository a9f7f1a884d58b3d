"""`read_adapter`: the files of a LoRA adapter as an `Adapter` for a model's program."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from octavo.errors import AdapterError, ModelLoadError
from octavo.kernels.adapter import MAX_RANK, Adapter, Float32, LowRankPair
from octavo.kernels.program import Linear, Program, RopeAndWriteKV, RopeStyle
from octavo.kernels.quantization import dequantize
from octavo.kernels.weight import Weight
from octavo.models.gguf_adapter import open_gguf_adapter
from octavo.models.loaded import LoadedModel
from octavo.models.peft_adapter import open_peft_adapter
from octavo.models.quoting import one_line, quote
from octavo.models.stored_adapter import StoredAdapter, StoredPair

_ROTATED = ("attn_q", "attn_k")


class ReadAdapter(NamedTuple):
    """An adapter in memory, ready for an interpreter."""

    adapter: Adapter
    revision: str
    """Digest of its files: K/V made with another revision must not be mixed with its."""

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""
        return self.adapter.num_bytes


def read_adapter(path: Path | str, model: LoadedModel, *, max_bytes: int) -> ReadAdapter:
    """Read a PEFT folder, or a GGUF file with an adapter. Changes nothing; any thread may call it.

    Args:
        path: the folder or file.
        model: the base.
        max_bytes: most memory for the matrices.

    Raises:
        AdapterError: a file is missing or damaged, does not fit the model, or is too large.
    """
    path = Path(path)
    architecture = model.spec.architecture
    if not _exists(path):
        raise AdapterError(f"{path}: there is no adapter: a folder with adapter_config.json, or a GGUF file")
    try:
        stored = (
            open_peft_adapter(path, architecture) if path.is_dir() else open_gguf_adapter(path, architecture)
        )
        return ReadAdapter(_bind(path, stored, model, max_bytes), stored.revision)
    except ModelLoadError as error:
        raise AdapterError(str(error)) from None
    except OSError as error:  # a file that vanishes
        raise AdapterError(f"{path}: cannot be read: {one_line(str(error))}") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a NUL in it
        return False


def _bind(path: Path, stored: StoredAdapter, model: LoadedModel, max_bytes: int) -> Adapter:
    """The matrices in float32, each pair checked against the weight that it changes."""
    if not stored.pairs:
        raise AdapterError(f"{path}: the adapter has no matrices")
    num_bytes = sum(4 * (int(np.prod(pair.a.shape)) + int(np.prod(pair.b.shape))) for pair in stored.pairs)
    if num_bytes > max_bytes:
        raise AdapterError(
            f"{path}: the adapter needs {num_bytes >> 20:,} MiB of memory, there is room for"
            f" {max_bytes >> 20:,}; unload another one"
        )
    layout = _BaseLayout(model.program)
    if not stored.has_half_split_heads and model.path.is_dir():
        raise AdapterError(
            f"{path}: GGUF adapters go with GGUF models, whose rows have another order; give the PEFT folder"
        )
    pairs: dict[Weight, LowRankPair] = {}
    for pair in stored.pairs:
        weights = layout.parts.get(pair.target)
        if weights is None:
            raise AdapterError(
                f"{path}: the adapter changes {quote(pair.stored_name)}, which adapters cannot change in this"
                f" model{_trained_on(stored.base)}; q, k, v, o, gate, up and down of every layer can be"
            )
        _check_shapes(path, pair, weights, stored.base)
        a, b = _numbers(path, pair, pair.a), _numbers(path, pair, pair.b)
        if stored.has_half_split_heads and layout.is_interleaved and pair.target.split(".")[2] in _ROTATED:
            b = _interleave_heads(b, layout.head_dim)
        ends = np.cumsum([weight.shape[0] for weight in weights])[:-1]
        for weight, rows in zip(weights, np.split(b, ends), strict=True):
            pairs[weight] = LowRankPair(a, rows, pair.scale)
    return Adapter(pairs)


class _BaseLayout:
    """Where the weights of a program's linears are, and in which order rows of queries and keys lie.

    Attributes:
        parts: by name; a tensor that the program uses in pieces has several.
        is_interleaved: whether the pairs that rope rotates are neighbours, as in GGUF's llama files.
        head_dim: size of a head.
    """

    def __init__(self, program: Program) -> None:
        self.parts: dict[str, list[Weight]] = {}
        for weight in _linear_weights(program):
            self.parts.setdefault(weight.name.partition("[")[0], []).append(weight)
        ropes = [op for op in program.ops if isinstance(op, RopeAndWriteKV)]
        self.head_dim = ropes[0].head_dim if ropes else 1
        self.is_interleaved = any(
            op.rope.rotary_dim and op.rope.style is RopeStyle.INTERLEAVED for op in ropes
        )


def _linear_weights(program: Program) -> Iterator[Weight]:
    for op in program.ops:
        if isinstance(op, Linear):
            yield from op.parts


def _check_shapes(path: Path, pair: StoredPair, weights: list[Weight], base: str) -> None:
    rows, columns = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
    a, b = pair.a.shape, pair.b.shape
    if len(a) != 2 or len(b) != 2 or a[0] != b[1] or (b[0], a[1]) != (rows, columns):
        raise AdapterError(
            f"{path}: the matrices of {quote(pair.stored_name)} have shapes {a} and {b}, but a weight of"
            f" ({rows}, {columns}) needs (rank, {columns}) and ({rows}, rank){_trained_on(base)}"
        )
    if not 1 <= a[0] <= MAX_RANK:
        raise AdapterError(
            f"{path}: {quote(pair.stored_name)} has rank {a[0]}; ranks from 1 to {MAX_RANK} are supported"
        )


def _trained_on(base: str) -> str:
    return f" (the adapter was trained on {quote(base)})" if base else ""


def _numbers(path: Path, pair: StoredPair, weight: Weight) -> Float32:
    numbers: Float32 = dequantize(weight).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise AdapterError(
            f"{path}: the matrices of {quote(pair.stored_name)} hold numbers that are not finite"
        )
    return numbers


def _interleave_heads(b: Float32, head_dim: int) -> Float32:
    """Rows of heads from (0, d/2), (1, d/2 + 1) … being pairs to neighbours being pairs."""
    halves = b.reshape(-1, 2, head_dim // 2, b.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(b.shape)
