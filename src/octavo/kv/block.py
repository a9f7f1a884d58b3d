"""`KVCacheBlock`: one physical block of the pool. `BlockCopy`: an order to copy one."""

from typing import NamedTuple


class BlockCopy(NamedTuple):
    """Copy-on-write: block ``src`` is copied to ``dst`` in every layer before the step computes."""

    src: int
    dst: int


class KVCacheBlock:
    """A block's identity, reference count, hash and links in the free queue."""

    __slots__ = ("block_hash", "block_id", "next_free_block", "prev_free_block", "ref_cnt")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None
        self.prev_free_block: KVCacheBlock | None = None
        self.next_free_block: KVCacheBlock | None = None
