"""What an allocation needs, decided before anything is touched.

The same `Placement` is the estimate that is compared with the free blocks and the order that is carried
out, so the two cannot disagree.
"""

from collections.abc import Mapping
from typing import NamedTuple

from octavo.kv.block import KVCacheBlock
from octavo.kv.block_table import BlockTable
from octavo.kv.prefix_hit import PrefixHit


class Span(NamedTuple):
    """The positions ``start … end - 1`` that an allocation makes room for."""

    start: int
    computed_end: int
    """Where the tokens to compute end and look-ahead begins."""
    end: int

    def num_blocks(self, block_size: int) -> int:
        """Length of a block table that reaches to the end of the span."""
        return -(-self.end // block_size)

    def held_entries(self, table: BlockTable, block_size: int) -> range:
        """Entries that the table has already and that the span writes into."""
        return range(self.start // block_size, min(len(table.blocks), self.num_blocks(block_size)))


class Placement(NamedTuple):
    """What an allocation takes from the pool."""

    num_new_blocks: int
    """Blocks to append to the table."""
    shared_entries: list[int]
    """Table entries that are written and that another table holds too: each costs a private copy."""
    num_idle_hits: int
    """Blocks of the hit that are free now, and will not be."""

    @property
    def num_free_blocks_used(self) -> int:
        """By how much the allocation lowers the number of free blocks."""
        return self.num_new_blocks + len(self.shared_entries) + self.num_idle_hits


def place_first(span: Span, hit: PrefixHit, block_size: int) -> Placement:
    """For a request without a table, which takes over the blocks of ``hit``."""
    idle_hits = [block for block in hit.blocks if block.ref_cnt == 0]
    return Placement(max(span.num_blocks(block_size) - len(hit.blocks), 0), [], len(idle_hits))


def place_next(span: Span, table: BlockTable, block_size: int, pins: Mapping[int, int]) -> Placement:
    """For a request that has a table. ``pins`` are references by block id that are no table's."""

    def is_shared(block: KVCacheBlock) -> bool:
        return block.ref_cnt - pins.get(block.block_id, 0) > 1

    shared = [entry for entry in span.held_entries(table, block_size) if is_shared(table.blocks[entry])]
    return Placement(max(span.num_blocks(block_size) - len(table.blocks), 0), shared, 0)
