"""`StepLog`: what the step being scheduled has promised, and what becomes of it when the step has run.

Blocks become findable, and copies are ordered, before the K/V they stand for exists. If the step runs,
the promises are kept. If it fails, nothing that was committed in it may be found. Either way the copies
are over, and what was held for them is let go.
"""

from collections import Counter
from typing import NamedTuple

from octavo.kv.block import BlockCopy, KVCacheBlock
from octavo.kv.block_pool import BlockPool
from octavo.kv.block_table import BlockTable


class _Commit(NamedTuple):
    """Entries of ``table`` from ``start`` on were committed, which made ``blocks`` findable."""

    table: BlockTable
    start: int
    blocks: list[KVCacheBlock]


class _Copy(NamedTuple):
    """An order to copy, with the blocks themselves."""

    src: KVCacheBlock
    dst: KVCacheBlock


class StepLog:
    """Commits and copies since the last step was confirmed or rolled back.

    Both ends of a copy are pinned, that is, have one reference more than tables hold them, so that
    neither can be handed to somebody else before the copy has been made.

    Attributes:
        pins: references held by copies, by block id; no entry is zero.
        num_copies: copies ordered since the start.
    """

    __slots__ = ("_commits", "_pool", "_queued", "_taken", "num_copies", "pins")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._commits: list[_Commit] = []
        self._queued: list[_Copy] = []
        self._taken: list[_Copy] = []
        self.pins: Counter[int] = Counter()
        self.num_copies = 0

    def record_commit(self, table: BlockTable, start: int, blocks: list[KVCacheBlock]) -> None:
        """Entries of ``table`` from ``start`` on were committed, which made ``blocks`` findable."""
        self._commits.append(_Commit(table, start, blocks))

    def make_private(self, table: BlockTable, entry: int, dst: KVCacheBlock) -> None:
        """Put ``dst``, which the caller has allocated, in the table, and order the copy of what was there."""
        src = table.blocks[entry]
        table.replace(entry, dst)
        self._pool.acquire((dst,))
        self.pins[dst.block_id] += 1
        self.pins[src.block_id] += 1  # the reference that the table had
        self._queued.append(_Copy(src, dst))
        self.num_copies += 1

    def take_copies(self) -> list[BlockCopy]:
        """Copies ordered since the last call, to be made in this order."""
        copies = [BlockCopy(copy.src.block_id, copy.dst.block_id) for copy in self._queued]
        self._taken += self._queued
        self._queued.clear()
        return copies

    def confirm(self) -> None:
        """The step ran: commits stand, and the copies that were taken have been made."""
        self._commits.clear()
        self._unpin(self._taken)

    def rollback(self) -> None:
        """The step failed: nothing committed in it is findable, and its copies are off."""
        for commit in self._commits:
            self._undo(commit)
        self._commits.clear()
        self._unpin(self._queued)
        self._unpin(self._taken)

    def uncommit(self, table: BlockTable) -> None:
        """Nothing that ``table`` committed is findable."""
        for commit in self._commits:
            if commit.table is table:
                self._undo(commit)
        self._commits = [commit for commit in self._commits if commit.table is not table]

    def forget_commits(self) -> None:
        """The whole cache was reset: there is nothing left to make unfindable."""
        self._commits.clear()

    def _undo(self, commit: _Commit) -> None:
        commit.table.num_committed_blocks = min(commit.table.num_committed_blocks, commit.start)
        for block in commit.blocks:
            self._pool.evict(block)

    def _unpin(self, copies: list[_Copy]) -> None:
        if not copies:
            return
        for copy in copies:
            self.pins.subtract((copy.src.block_id, copy.dst.block_id))
            self._pool.release((copy.src,))
            self._pool.release((copy.dst,))
        self.pins = +self.pins  # drops the zeros
        copies.clear()
