"""`NativeKVStore`: K and V in the native library's memory, which grows as blocks are first written."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import ConfigError
from octavo.kernels.native_library import KvShapeStruct, NativeLibrary, address, as_int32
from octavo.kernels.native_pool import NativePool
from octavo.kv.spec import KVCacheSpec

_DTYPE_CODES = {"float16": 0, "float32": 1}


class NativeKVStore:
    """Blocks 0 … ``num_blocks - 1`` and the null block, ``num_blocks``.

    Raises:
        ConfigError: the block size is not a multiple of 8.
        EngineError: the system has no such memory.
    """

    def __init__(
        self, spec: KVCacheSpec, num_blocks: int, *, library: NativeLibrary, pool: NativePool
    ) -> None:
        if spec.block_size % 8:
            raise ConfigError(
                f"block_size must be a multiple of 8 for the native kernels, got {spec.block_size}"
            )
        self.spec = spec
        self.num_blocks = num_blocks
        self._library, self._pool = library, pool
        shape = KvShapeStruct(
            num_layers=spec.num_layers,
            num_blocks=num_blocks + 1,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            block_size=spec.block_size,
            dtype=_DTYPE_CODES[spec.dtype],
        )
        self.handle: int | None = library.create("octavo_kv_create", ctypes.byref(shape))

    @property
    def num_bytes(self) -> int:
        """Size of the whole store, touched or not."""
        return self._library.get("octavo_kv_num_bytes", self.handle) if self.handle else 0

    @property
    def _block_shape(self) -> tuple[int, int, int, int]:
        return (2, self.spec.block_size, self.spec.num_kv_heads, self.spec.head_dim)

    def block(self, layer: int, block_id: int) -> npt.NDArray[np.generic]:
        """A copy of one block, [2, block_size, num_kv_heads, head_dim]; 0 is K, 1 is V.

        Raises:
            EngineError: there is no such layer or block, or the store is closed.
        """
        content: npt.NDArray[Any] = np.empty(self._block_shape, dtype=self.spec.dtype)
        self._library.call("octavo_kv_read_block", self.handle, layer, block_id, address(content))
        return content

    def write_block(self, layer: int, block_id: int, content: npt.NDArray[np.generic]) -> None:
        """Overwrite one block from the logical shape [2, block_size, num_kv_heads, head_dim].

        Raises:
            ValueError: the content has another shape.
            EngineError: there is no such layer or block, or the store is closed.
        """
        if content.shape != self._block_shape:
            raise ValueError(f"a block has shape {self._block_shape}, got {content.shape}")
        stored = np.ascontiguousarray(content, dtype=self.spec.dtype)
        self._library.call("octavo_kv_write_block", self.handle, layer, block_id, address(stored))

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy block ``src`` to ``dst`` in every layer, for each (src, dst) in order.

        Raises:
            EngineError: there is no such block (then nothing was copied), or the store is closed.
        """
        pairs = as_int32(list(copies)).reshape(-1, 2)
        if len(pairs):
            self._library.call(
                "octavo_kv_copy_blocks", self.handle, self._pool.handle, address(pairs), len(pairs)
            )

    def close(self) -> None:
        """Give the memory back; calling it again does nothing."""
        if self.handle:
            self._library.get("octavo_kv_destroy", self.handle)
            self.handle = None
