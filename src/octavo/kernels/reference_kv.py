"""`ReferenceKVStore`: the paged cache as arrays in their logical layout and its number format."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.kernels.int8_vectors import Int8Vectors, dequantize_vectors, quantize_vectors
from octavo.kernels.kv_quantization import dequantize_keys, quantize_keys
from octavo.kv.spec import KVCacheSpec, KVDtype

Array = npt.NDArray[Any]
Index = int | slice | Array | tuple[int | slice | Array, ...]
Float = type[np.float32] | type[np.float64]


class SequenceKV(NamedTuple):
    """K and V of some tokens, as of positions 0 … seq_len - 1 of one sequence."""

    keys: Array
    """[num_tokens, num_kv_heads, head_dim]"""
    values: Array
    """[num_tokens, num_kv_heads, head_dim]"""


class KVArray:
    """K and V of many tokens. Indexing takes and gives the numbers, whatever is kept of them.

    Args:
        shape: [..., num_kv_heads, head_dim]
        kv_dtype: what is kept.
        dtype: of a cache that is neither float16 nor int8, and of the numbers that an int8 cache stands for.

    Attributes:
        arrays: what is kept: K and V; or the integers and scales [..., num_kv_heads] of K, then those of V.
    """

    def __init__(self, shape: tuple[int, ...], kv_dtype: KVDtype, dtype: Float) -> None:
        self._is_int8, self._dtype = kv_dtype == "int8", dtype
        kinds: list[tuple[tuple[int, ...], npt.DTypeLike]]
        if self._is_int8:
            kinds = [(shape, np.int8), (shape[:-1], np.float32)]
        else:
            kinds = [(shape, np.float16 if kv_dtype == "float16" else dtype)]
        self.arrays: list[Array] = [np.zeros(*kind) for kind in 2 * kinds]

    def __getitem__(self, index: Index) -> SequenceKV:
        parts = [array[index] for array in self.arrays]
        if not self._is_int8:
            return SequenceKV(*parts)
        keys, values = Int8Vectors(*parts[:2]), Int8Vectors(*parts[2:])
        return SequenceKV(dequantize_keys(keys, self._dtype), dequantize_vectors(values, self._dtype))

    def __setitem__(self, index: Index, kv: SequenceKV) -> None:
        parts = (*quantize_keys(kv.keys), *quantize_vectors(kv.values)) if self._is_int8 else kv
        for array, part in zip(self.arrays, parts, strict=True):
            array[index] = part


class ReferenceKVStore:
    """K/V of every block and layer.

    Attributes:
        spec: the cache's shape.
        num_blocks: usable blocks; block ``num_blocks`` is the null block.
        slots: [num_layers, num_blocks + 1, block_size, num_kv_heads, head_dim]
    """

    def __init__(self, spec: KVCacheSpec, num_blocks: int, *, dtype: Float = np.float32) -> None:
        self.spec = spec
        self.num_blocks = num_blocks
        shape = (spec.num_layers, num_blocks + 1, spec.block_size, spec.num_kv_heads, spec.head_dim)
        self.slots = KVArray(shape, spec.dtype, dtype)

    @property
    def num_bytes(self) -> int:
        """Size of the whole store."""
        return sum(array.nbytes for array in self.slots.arrays)

    def block(self, layer: int, block_id: int) -> Array:
        """A copy of one block [2, block_size, num_kv_heads, head_dim]; dequantised."""
        return np.stack(self.slots[layer, block_id])

    def write_block(self, layer: int, block_id: int, content: npt.NDArray[np.generic]) -> None:
        """Overwrite one block."""
        self.slots[layer, block_id] = SequenceKV(*content)

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy block ``src`` to ``dst`` in every layer, for each (src, dst) in order."""
        for src, dst in copies:
            for array in self.slots.arrays:
                array[:, dst] = array[:, src]
