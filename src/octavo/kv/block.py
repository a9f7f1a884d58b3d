"""`KVCacheBlock`: one physical block of the pool. `BlockCopy`: an order to copy one.

A block is a column of memory through all layers that holds the K and V of `block_size` tokens. The
object here is only its bookkeeping; the memory belongs to the runner, which knows blocks by their id.
"""

from typing import NamedTuple


class BlockCopy(NamedTuple):
    """Copy-on-write: block ``src`` is copied to ``dst`` in every layer before the step computes."""

    src: int
    dst: int


class KVCacheBlock:
    """A block's identity, reference count, hash and links in the free queue.

    Attributes:
        block_id: index of the physical block; never changes.
        ref_cnt: block tables that hold the block, plus pins of copies that are still to run.
        block_hash: chained hash of the prefix that ends with this block; ``None`` unless it is findable.
        prev_free_block: neighbour towards the front of the free queue; ``None`` unless the block is in it.
        next_free_block: neighbour towards the tail of the free queue; ``None`` unless the block is in it.
    """

    __slots__ = ("block_hash", "block_id", "next_free_block", "prev_free_block", "ref_cnt")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None
        self.prev_free_block: KVCacheBlock | None = None
        self.next_free_block: KVCacheBlock | None = None
