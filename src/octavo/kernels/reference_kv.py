"""`ReferenceKVStore`: the paged cache as one array in its logical layout."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.kv.spec import KVCacheSpec


class ReferenceKVStore:
    """K/V of every block and layer.

    Attributes:
        spec: the cache's shape.
        num_blocks: usable blocks; block ``num_blocks`` is the null block.
        blocks: [num_layers, num_blocks + 1, 2, block_size, num_kv_heads, head_dim]; 0 is K, 1 is V.
    """

    def __init__(self, spec: KVCacheSpec, num_blocks: int, dtype: npt.DTypeLike) -> None:
        self.spec = spec
        self.num_blocks = num_blocks
        self.blocks: npt.NDArray[Any] = np.zeros(
            (spec.num_layers, num_blocks + 1, 2, spec.block_size, spec.num_kv_heads, spec.head_dim), dtype
        )

    @property
    def num_bytes(self) -> int:
        """Size of the whole store."""
        return self.blocks.nbytes

    def block(self, layer: int, block_id: int) -> npt.NDArray[Any]:
        """A copy of one block [2, block_size, num_kv_heads, head_dim]."""
        content: npt.NDArray[Any] = self.blocks[layer, block_id].copy()
        return content

    def write_block(self, layer: int, block_id: int, content: npt.NDArray[np.generic]) -> None:
        """Overwrite one block."""
        self.blocks[layer, block_id] = content

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy block ``src`` to ``dst`` in every layer, for each (src, dst) in order."""
        for src, dst in copies:
            self.blocks[:, dst] = self.blocks[:, src]
