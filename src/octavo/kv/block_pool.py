"""`BlockPool`: all blocks of the cache, who holds them, and which of them can be found by content.

Freeing a block erases nothing. Its content stays findable until the block reaches the front of the free
queue and is handed out again (lazy eviction), so an idle cache is a full cache. Where a freed block goes
decides what survives longest: findable blocks go to the tail, those of no further use to the front.
"""

from collections.abc import Sequence

from octavo.errors import ConfigError, InvariantError
from octavo.kv.block import KVCacheBlock
from octavo.kv.eviction_log import EvictionLog
from octavo.kv.free_queue import FreeBlockQueue
from octavo.kv.hash_map import BlockHashToBlockMap
from octavo.kv.hashing import BlockHash


class BlockPool:
    """The physical blocks ``0 … num_blocks - 1``, plus the null block ``num_blocks``.

    The null block is a real block of memory that stands in block tables where nothing is ever read. It
    is never handed out, held, freed or hashed.

    Attributes:
        blocks: the usable blocks by id.
        null_block: the extra one.
        free_block_queue: blocks with ``ref_cnt`` 0, next to be used first.
        cached_blocks: findable blocks, in use or free.
        num_shared_blocks: blocks that more than one holds.
        eviction_log: what was evicted of late.
        num_evictions: findable blocks handed out again, and so forgotten, since the start.
    """

    __slots__ = (
        "blocks",
        "cached_blocks",
        "eviction_log",
        "free_block_queue",
        "null_block",
        "num_evictions",
        "num_shared_blocks",
    )

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ConfigError(f"num_blocks must be at least 1, got {num_blocks}")
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self.null_block = KVCacheBlock(num_blocks)
        self.free_block_queue = FreeBlockQueue(self.blocks)
        self.cached_blocks = BlockHashToBlockMap()
        self.eviction_log = EvictionLog()
        self.num_shared_blocks = 0
        self.num_evictions = 0

    @property
    def num_blocks(self) -> int:
        """Usable blocks; the null block is not one."""
        return len(self.blocks)

    @property
    def num_free_blocks(self) -> int:
        """Blocks nobody holds, whether or not their content can still be found."""
        return self.free_block_queue.num_free_blocks

    @property
    def usage(self) -> float:
        """Share of the usable blocks that somebody holds, 0.0 … 1.0."""
        return 1.0 - self.num_free_blocks / len(self.blocks)

    def allocate(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue, each with one holder and without a hash.

        Raises:
            InvariantError: fewer are free, or the number is negative; nothing has changed.
        """
        blocks = self.free_block_queue.popleft_n(num_blocks)
        for block in blocks:
            block.ref_cnt = 1
        self.eviction_log.record(blocks)
        self.num_evictions += self.cached_blocks.remove_findable(blocks)
        return blocks

    def acquire(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Add a holder to every block; those that were free leave the queue and keep their content."""
        null_block = self.null_block
        remove = self.free_block_queue.remove
        for block in blocks:
            if block.ref_cnt == 0:
                if block is null_block:
                    continue
                remove(block)
            elif block.ref_cnt == 1:
                self.num_shared_blocks += 1
            block.ref_cnt += 1

    def release(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Drop one holder of every block, given in table order; the last block of a chain is freed first.

        So the end of a prefix is evicted before its beginning, without which the end is useless. Blocks
        that are findable go to the tail of the free queue, the others to its front.

        Raises:
            InvariantError: nobody holds one of the blocks; nothing has changed.
        """
        for block in blocks:
            if block.ref_cnt != 1:
                blocks = self._drop_shared(blocks)
                break
        queue = self.free_block_queue
        last = queue.tail.prev_free_block
        assert last is not None  # a sentinel always has its inner neighbour
        unhashed = []
        for block in reversed(blocks):
            block.ref_cnt = 0
            if block.block_hash is None:
                unhashed.append(block)
                continue
            last.next_free_block = block  # append_n, inlined: this loop is the whole cost of a release
            block.prev_free_block = last
            last = block
        last.next_free_block = queue.tail
        queue.tail.prev_free_block = last
        queue.num_free_blocks += len(blocks) - len(unhashed)
        if unhashed:
            unhashed.reverse()
            queue.prepend_n(unhashed)

    def _drop_shared(self, blocks: Sequence[KVCacheBlock]) -> list[KVCacheBlock]:
        """Drop a holder of the blocks that keep others, and return those that are to be freed."""
        held = [block for block in blocks if block is not self.null_block]
        for block in held:
            if block.ref_cnt < 1:
                raise InvariantError(f"block {block.block_id} is released, but nobody holds it")
        freed = []
        for block in held:
            if block.ref_cnt == 1:
                freed.append(block)
            else:
                block.ref_cnt -= 1
                self.num_shared_blocks -= block.ref_cnt == 1
        return freed

    def commit(self, blocks: Sequence[KVCacheBlock], block_hashes: Sequence[BlockHash]) -> list[KVCacheBlock]:
        """Make full blocks that somebody holds findable as ``block_hashes``.

        Returns:
            Those that were not findable as just that before: another holder may have committed them.
        """
        insert = self.cached_blocks.insert
        committed = []
        for block, block_hash in zip(blocks, block_hashes, strict=True):
            if block.block_hash != block_hash:
                if block.ref_cnt == 0:
                    raise InvariantError(f"block {block.block_id} is committed, but nobody holds it")
                insert(block_hash, block)
                committed.append(block)
        return committed

    def evict(self, block: KVCacheBlock) -> None:
        """Make a block unfindable; who holds it keeps it. No-op for a block without a hash."""
        if block.block_hash is not None:
            self.cached_blocks.remove(block)

    def reset(self) -> bool:
        """Make every block unfindable, if nobody holds any; says whether it did."""
        if self.num_free_blocks != len(self.blocks):
            return False
        self.cached_blocks.clear()
        self.eviction_log.clear()
        return True
