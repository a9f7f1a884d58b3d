"""`BlockTable`: the blocks of one request, in the order of its tokens.

Position ``pos`` lives in slot ``block_ids[pos // block_size] * block_size + pos % block_size``. A table
only grows at its end; the one exception is copy-on-write, which replaces an entry. Whoever mirrors the
table (the runner's input batch) fetches what has changed since it last did.
"""

from collections.abc import Iterable
from typing import NamedTuple

from octavo.kv.block import KVCacheBlock


class TableChange(NamedTuple):
    """A block table from entry ``start`` on; everything before is as the reader knows it."""

    start: int
    block_ids: list[int]


class BlockTable:
    """One request's blocks.

    Attributes:
        blocks: entry i holds tokens ``i * block_size …``.
        num_committed_blocks: leading blocks that have been made findable, or need not be.
        changed_from: index of the first entry that the reader of `take_change` has not seen.
    """

    __slots__ = ("blocks", "changed_from", "num_committed_blocks")

    def __init__(self, blocks: Iterable[KVCacheBlock] = (), *, num_committed_blocks: int = 0) -> None:
        self.blocks = list(blocks)
        self.num_committed_blocks = num_committed_blocks
        self.changed_from = 0

    def replace(self, entry: int, block: KVCacheBlock) -> None:
        """Put another block, whose content is not committed, in the place of the one at ``entry``."""
        self.blocks[entry] = block
        self.changed_from = min(self.changed_from, entry)
        self.num_committed_blocks = min(self.num_committed_blocks, entry)

    @property
    def block_ids(self) -> list[int]:
        """The physical ids, as attention reads them."""
        return [block.block_id for block in self.blocks]

    def take_change(self) -> TableChange:
        """What has changed since the last call."""
        start, end = self.changed_from, len(self.blocks)
        if start == end:  # decoding, nearly always
            return TableChange(start, [])
        self.changed_from = end
        return TableChange(start, [block.block_id for block in self.blocks[start:]])
