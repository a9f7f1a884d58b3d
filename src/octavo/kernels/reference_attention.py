"""Attention of the reference: where a sequence's K/V lies, and what one query row makes of it.

`PagedSequences` finds K/V through the block table. `ContiguousSequences` knows no blocks: it keeps each
sequence in one array, the layout that paging replaced, and the two must give the same result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.kernels.interpreter import StepInput
from octavo.kernels.kv_quantization import dequantize_queries, quantize_queries
from octavo.kernels.program import PagedAttention
from octavo.kernels.reference_kv import Float, KVArray, ReferenceKVStore, SequenceKV
from octavo.kernels.reference_ops import soft_cap
from octavo.kv.spec import KVDtype

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RequestPart:
    """One request's part of a step."""

    index: int
    """Its place in ``seq_lens`` and ``block_tables``."""
    rows: slice
    """Its rows of every buffer."""
    positions: npt.NDArray[np.int32]
    """[num_rows]"""


class Sequences(Protocol):
    """The K/V of the requests, by layer."""

    kv_dtype: KVDtype
    """What is kept of the numbers."""

    def write(self, layer: int, step: StepInput, rows: SequenceKV) -> None:
        """Store K and V of every row of the step [num_tokens, num_kv_heads, head_dim]."""
        ...

    def read(self, layer: int, step: StepInput, request: RequestPart) -> SequenceKV:
        """Everything known of one request once the step's rows are written."""
        ...


def requests_of(step: StepInput) -> Iterator[RequestPart]:
    """The requests of a step in row order."""
    for index in range(len(step.seq_lens)):
        rows = slice(int(step.query_start_loc[index]), int(step.query_start_loc[index + 1]))
        yield RequestPart(index, rows, step.positions[rows])


class PagedSequences:
    """K/V in the blocks of a store: position p lies in block ``table[p // block_size]``."""

    def __init__(self, store: ReferenceKVStore) -> None:
        self.kv_dtype = store.spec.dtype
        self._store = store

    def write(self, layer: int, step: StepInput, rows: SequenceKV) -> None:
        """Scatter the rows into their slots."""
        block_size = self._store.spec.block_size
        for request in requests_of(step):
            block_ids = step.block_tables[request.index, request.positions // block_size]
            offsets = request.positions % block_size
            own = SequenceKV(rows.keys[request.rows], rows.values[request.rows])
            self._store.slots[layer, block_ids, offsets] = own

    def read(self, layer: int, step: StepInput, request: RequestPart) -> SequenceKV:
        """Gather the sequence through the block table."""
        block_size = self._store.spec.block_size
        positions = np.arange(step.seq_lens[request.index])
        block_ids = step.block_tables[request.index, positions // block_size]
        return self._store.slots[layer, block_ids, positions % block_size]


class ContiguousSequences:
    """K/V of each sequence in one growing array per layer.

    A sequence is recognised by the first entry of its block table, the only one that is looked at. So
    requests that live together must not share their first block, and nothing can be a prefix hit.
    A sequence that starts again at position 0 overwrites the one that had the block before.
    """

    def __init__(self, kv_dtype: KVDtype, dtype: Float) -> None:
        self.kv_dtype = kv_dtype
        self._dtype: Float = dtype
        # By layer and first block: [capacity, num_kv_heads, head_dim].
        self._sequences: dict[tuple[int, int], KVArray] = {}

    def write(self, layer: int, step: StepInput, rows: SequenceKV) -> None:
        """Store each request's rows at their positions."""
        for request in requests_of(step):
            sequence = self._with_capacity(layer, step, request, rows.keys.shape[1:])
            sequence[request.positions] = SequenceKV(rows.keys[request.rows], rows.values[request.rows])

    def read(self, layer: int, step: StepInput, request: RequestPart) -> SequenceKV:
        """The sequence as it lies."""
        sequence = self._sequences[layer, int(step.block_tables[request.index, 0])]
        return sequence[: step.seq_lens[request.index]]

    def _with_capacity(
        self, layer: int, step: StepInput, request: RequestPart, shape: tuple[int, ...]
    ) -> KVArray:
        key = (layer, int(step.block_tables[request.index, 0]))
        sequence = self._sequences.get(key)
        seq_len = int(step.seq_lens[request.index])
        if sequence is None or len(sequence.arrays[0]) < seq_len:
            grown = KVArray((2 * seq_len, *shape), self.kv_dtype, self._dtype)
            if sequence is not None:
                for new, old in zip(grown.arrays, sequence.arrays, strict=True):
                    new[: len(old)] = old
            self._sequences[key] = sequence = grown
        return sequence


def attend(op: PagedAttention, queries: Array, step: StepInput, sequences: Sequences) -> Array:
    """Causal attention of every query row [num_tokens, num_heads * head_dim], in the queries' dtype."""
    group_size = op.num_heads // op.num_kv_heads
    grouped = queries.reshape(-1, op.num_kv_heads, group_size, op.head_dim)
    if sequences.kv_dtype == "int8":
        scaled = dequantize_queries(quantize_queries(grouped, op.scale), queries.dtype)
    else:
        scaled = grouped * op.scale
    out = np.empty_like(grouped)
    for request in requests_of(step):
        keys, values = sequences.read(op.layer, step, request)
        keys, values = keys.astype(queries.dtype), values.astype(queries.dtype)
        for row, position in enumerate(request.positions, start=request.rows.start):
            # Invisible tokens are cut off, not masked: 0 times the NaN of a stale slot would be NaN.
            first = 0 if op.window is None else max(0, position - op.window + 1)
            visible = slice(first, position + 1)
            out[row] = _attend_row(op, scaled[row], keys[visible], values[visible])
    return out.reshape(queries.shape)


def _attend_row(
    op: PagedAttention,
    query: Array,  # [num_kv_heads, group_size, head_dim], scaled
    keys: Array,  # [num_visible, num_kv_heads, head_dim]
    values: Array,  # [num_visible, num_kv_heads, head_dim]
) -> Array:
    """``softmax(query · keys) · values`` for all heads of one row [num_kv_heads, group_size, head_dim]."""
    scores = soft_cap(query @ keys.transpose(1, 2, 0), op.soft_cap)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities = weights / weights.sum(axis=-1, keepdims=True)
    out: Array = probabilities @ values.transpose(1, 0, 2)
    return out
