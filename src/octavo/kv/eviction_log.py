"""`EvictionLog`: which contents were evicted of late, to tell what was lost from what was never there."""

from collections.abc import Iterable

from octavo.kv.block import KVCacheBlock
from octavo.kv.hashing import BlockHash

MAX_REMEMBERED = 16_384
"""Contents that are remembered, the oldest leaving first: two megabytes."""


class EvictionLog:
    """The hashes of the blocks that were handed out again last."""

    __slots__ = ("_capacity", "_hashes")

    def __init__(self, capacity: int = MAX_REMEMBERED) -> None:
        self._capacity = capacity
        self._hashes: dict[BlockHash, None] = {}

    def record(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Remember what those of ``blocks`` held that are findable; they are about to be evicted."""
        hashes = self._hashes
        for block in blocks:
            if block.block_hash is not None:
                hashes.pop(block.block_hash, None)
                hashes[block.block_hash] = None
                if len(hashes) > self._capacity:
                    del hashes[next(iter(hashes))]

    def clear(self) -> None:
        """Forget everything."""
        self._hashes.clear()

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)
