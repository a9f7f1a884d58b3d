"""`FreeBlockQueue`: the blocks nobody holds, in the order in which they are used again.

The front is taken first, so the queue is the eviction order as well: a block that is freed keeps its
content and can still be hit until it has wandered to the front. A hit takes a block out of the middle,
which is why the list is linked through the blocks themselves: every operation is O(1) per block and
allocates nothing. Two sentinels at the ends spare all of them the question whether a neighbour exists.
"""

from collections.abc import Iterable, Iterator, Sequence

from octavo.errors import InvariantError
from octavo.kv.block import KVCacheBlock

_SENTINEL_ID = -1


class FreeBlockQueue:
    """Doubly linked list of free blocks.

    Attributes:
        num_free_blocks: length of the list.
        head: sentinel in front of the first block.
        tail: sentinel behind the last block.
    """

    __slots__ = ("head", "num_free_blocks", "tail")

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.head = KVCacheBlock(_SENTINEL_ID)
        self.tail = KVCacheBlock(_SENTINEL_ID)
        self.tail.prev_free_block = self.head
        self.num_free_blocks = 0
        self.append_n(list(blocks))  # links the head as well

    def popleft(self) -> KVCacheBlock:
        """Take the block at the front; `InvariantError` if there is none."""
        return self.popleft_n(1)[0]

    def popleft_n(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take ``num_blocks`` blocks from the front; `InvariantError`, and no change, if there are fewer."""
        if not 0 <= num_blocks <= self.num_free_blocks:
            raise InvariantError(f"{num_blocks} blocks taken from a free queue of {self.num_free_blocks}")
        popped = []
        block = self.head.next_free_block
        assert block is not None  # a sentinel always has its inner neighbour
        for _ in range(num_blocks):
            popped.append(block)
            following = block.next_free_block
            assert following is not None  # at the latest it is the tail sentinel
            block.prev_free_block = block.next_free_block = None
            block = following
        self.head.next_free_block = block
        block.prev_free_block = self.head
        self.num_free_blocks -= num_blocks
        return popped

    def remove(self, block: KVCacheBlock) -> None:
        """Take ``block`` out of wherever it is in the queue; `InvariantError` if it is not in it."""
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise InvariantError(f"block {block.block_id} is not in the free queue")
        before.next_free_block = after
        after.prev_free_block = before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        """Put ``block`` at the tail: it is used again last."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put ``blocks`` at the tail, in this order."""
        last = self.tail.prev_free_block
        assert last is not None  # a sentinel always has its inner neighbour
        for block in blocks:
            last.next_free_block = block
            block.prev_free_block = last
            last = block
        last.next_free_block = self.tail
        self.tail.prev_free_block = last
        self.num_free_blocks += len(blocks)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put ``blocks`` at the front, in this order: the first of them is used again first."""
        first = self.head.next_free_block
        assert first is not None  # a sentinel always has its inner neighbour
        for block in reversed(blocks):
            first.prev_free_block = block
            block.next_free_block = first
            first = block
        first.prev_free_block = self.head
        self.head.next_free_block = first
        self.num_free_blocks += len(blocks)

    def __iter__(self) -> Iterator[KVCacheBlock]:
        """From the front to the tail."""
        block = self.head.next_free_block
        while block is not None and block is not self.tail:
            yield block
            block = block.next_free_block

    def __len__(self) -> int:
        return self.num_free_blocks
