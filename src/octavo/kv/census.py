"""`BlockCensus`: where all blocks are at one moment, and what has been done with them since the start."""

from typing import NamedTuple

from octavo.kv.manager import KVCacheManager


class BlockCensus(NamedTuple):
    """Counts of blocks. Free and active ones add up to all; the others are among either of them."""

    num_blocks: int
    num_free: int
    """Nobody holds them; their content may still be findable."""
    num_cached: int
    """Findable by their content, free or active."""
    num_shared: int
    """Held by more than one."""
    num_pinned: int
    """Held for a copy that is under way, whoever else holds them."""
    num_evictions: int
    """Findable blocks that were handed out again, since the start."""
    num_copies: int
    """Blocks copied because somebody was to write into a shared one, since the start."""

    @property
    def num_active(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - self.num_free

    @property
    def usage(self) -> float:
        """Share of the blocks that somebody holds, 0.0 … 1.0."""
        return self.num_active / self.num_blocks


def take_census(kv: KVCacheManager) -> BlockCensus:
    """Count; the cost does not depend on the number of blocks or of requests."""
    pool, log = kv.block_pool, kv.step_log
    return BlockCensus(
        pool.num_blocks,
        pool.num_free_blocks,
        pool.cached_blocks.num_blocks,
        pool.num_shared_blocks,
        len(log.pins),
        pool.num_evictions,
        log.num_copies,
    )
