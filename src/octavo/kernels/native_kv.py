"""`NativeKVStore`: K and V in the native library's memory, which grows as blocks are first written."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import ConfigError
from octavo.kernels.native_library import KvShapeStruct, NativeLibrary, address, as_int32
from octavo.kernels.native_object import NativeHandle, NativeObject
from octavo.kernels.native_pool import NativePool
from octavo.kv.spec import KVCacheSpec

_DTYPE_CODES = {"float16": 0, "float32": 1, "int8": 2}
_LARGEST_HEAD_DIM = 256
"""kMaxHeadDim of native/step.h."""


class NativeKVStore(NativeObject):
    """Blocks 0 … ``num_blocks - 1`` and the null block, ``num_blocks``.

    Attributes:
        num_bytes: size of the whole store, touched or not.
        view_dtype: number format in which blocks are read and written here; float32 of an int8 store.

    Raises:
        ConfigError: the block size is not a multiple of 8, or a number is too large for the kernels.
        EngineError: the system has no such memory.
    """

    def __init__(
        self, spec: KVCacheSpec, num_blocks: int, *, library: NativeLibrary, pool: NativePool
    ) -> None:
        if spec.head_dim > _LARGEST_HEAD_DIM:
            raise ConfigError(
                f"the native kernels take heads of at most {_LARGEST_HEAD_DIM} elements, but this model's "
                f"have {spec.head_dim}; use kernels='reference', which is slow"
            )
        if spec.block_size % 8:
            raise ConfigError(
                f"block_size must be a multiple of 8 for the native kernels, got {spec.block_size}"
            )
        shape = KvShapeStruct(
            num_layers=spec.num_layers,
            num_blocks=num_blocks + 1,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            block_size=spec.block_size,
            dtype=_DTYPE_CODES[spec.dtype],
        )
        handle = NativeHandle(library, "kv", ctypes.byref(shape))
        super().__init__(handle, "KV store", pool.lock)
        self.spec = spec
        self.num_blocks = num_blocks
        self.view_dtype = "float32" if spec.dtype == "int8" else spec.dtype
        self.num_bytes = library.get("octavo_kv_num_bytes", handle.address)
        self._library, self._pool = library, pool

    @property
    def _block_shape(self) -> tuple[int, int, int, int]:
        return (2, self.spec.block_size, self.spec.num_kv_heads, self.spec.head_dim)

    def block(self, layer: int, block_id: int) -> npt.NDArray[np.generic]:
        """A copy of one block, [2, block_size, num_kv_heads, head_dim]; 0 is K, 1 is V.

        Raises:
            EngineError: there is no such layer or block, or the store is closed.
        """
        content: npt.NDArray[Any] = np.empty(self._block_shape, dtype=self.view_dtype)
        self._access("octavo_kv_read_block", layer, block_id, content)
        return content

    def write_block(self, layer: int, block_id: int, content: npt.NDArray[np.generic]) -> None:
        """Overwrite one block from the logical shape [2, block_size, num_kv_heads, head_dim].

        Raises:
            ValueError: the content has another shape.
            EngineError: there is no such layer or block, or the store is closed.
        """
        if content.shape != self._block_shape:
            raise ValueError(f"a block has shape {self._block_shape}, got {content.shape}")
        stored = np.ascontiguousarray(content, dtype=self.view_dtype)
        self._access("octavo_kv_write_block", layer, block_id, stored)

    # With the pool, because a step that its threads have begun may write to the block; it is given up.
    def _access(self, function: str, layer: int, block_id: int, content: npt.NDArray[Any]) -> None:
        with self as kv, self._pool as pool:
            self._library.call(function, kv.address, pool.address, layer, block_id, address(content))

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy block ``src`` to ``dst`` in every layer, for each (src, dst) in order.

        Raises:
            EngineError: there is no such block (then nothing was copied), or the store is closed.
        """
        pairs = as_int32(list(copies)).reshape(-1, 2)
        with self as kv, self._pool as pool:
            self._library.call("octavo_kv_copy_blocks", kv.address, pool.address, address(pairs), len(pairs))
