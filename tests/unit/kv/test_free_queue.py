import pytest
from kv_harness import ids

from octavo.errors import InvariantError
from octavo.kv.block import KVCacheBlock
from octavo.kv.free_queue import FreeBlockQueue


def make_blocks(num_blocks: int) -> list[KVCacheBlock]:
    return [KVCacheBlock(block_id) for block_id in range(num_blocks)]


def order(queue: FreeBlockQueue) -> list[int]:
    """The ids from the front; checks that they are the same from the tail, and the count."""
    forwards = ids(list(queue))
    backwards = []
    block = queue.tail.prev_free_block
    while block is not queue.head:
        backwards.append(block.block_id)
        block = block.prev_free_block
    assert backwards == forwards[::-1]
    assert len(queue) == queue.num_free_blocks == len(forwards)
    return forwards


def test_pop_remove_and_append_keep_the_order():
    """T02."""
    blocks = make_blocks(5)
    queue = FreeBlockQueue(blocks)
    assert queue.popleft() is blocks[0]
    queue.remove(blocks[2])
    assert order(queue) == [1, 3, 4]
    queue.append(blocks[2])
    assert order(queue) == [1, 3, 4, 2]
    assert [queue.popleft().block_id for _ in range(4)] == [1, 3, 4, 2]
    assert order(queue) == []
    with pytest.raises(InvariantError, match="1 blocks taken from a free queue of 0"):
        queue.popleft()
    assert order(queue) == []


def test_append_n_keeps_the_order_given():
    """T03."""
    blocks = make_blocks(6)
    queue = FreeBlockQueue([])
    queue.append_n([])
    assert order(queue) == []
    queue.append_n([blocks[0]])
    queue.append_n([blocks[4], blocks[5]])
    queue.append_n([blocks[1], blocks[2], blocks[3]])
    assert order(queue) == [0, 4, 5, 1, 2, 3]


def test_prepend_n_keeps_the_order_given():
    """T04."""
    blocks = make_blocks(6)
    queue = FreeBlockQueue([])
    queue.prepend_n([])
    assert order(queue) == []
    queue.prepend_n([blocks[0]])
    queue.prepend_n([blocks[4], blocks[5]])
    assert order(queue) == [4, 5, 0]
    queue.prepend_n([blocks[1], blocks[2]])
    assert order(queue) == [1, 2, 4, 5, 0]


def test_popleft_n_takes_from_the_front_and_unlinks():
    """T05."""
    blocks = make_blocks(6)
    queue = FreeBlockQueue([blocks[i] for i in (1, 3, 5, 4, 0, 2)])
    popped = []
    for num_blocks, expected in ((0, []), (1, [1]), (2, [3, 5]), (3, [4, 0, 2])):
        taken = queue.popleft_n(num_blocks)
        assert ids(taken) == expected
        popped += taken
    assert order(queue) == []
    assert all(block.prev_free_block is None and block.next_free_block is None for block in popped)
    queue.append_n(popped)
    assert order(queue) == [1, 3, 5, 4, 0, 2]


@pytest.mark.parametrize("num_blocks", [-1, 4])
def test_an_impossible_pop_changes_nothing(num_blocks):
    queue = FreeBlockQueue(make_blocks(3))
    with pytest.raises(InvariantError, match=f"{num_blocks} blocks taken from a free queue of 3"):
        queue.popleft_n(num_blocks)
    assert order(queue) == [0, 1, 2]


def test_a_block_that_is_not_queued_cannot_be_removed():
    blocks = make_blocks(3)
    queue = FreeBlockQueue(blocks)
    queue.remove(blocks[1])
    with pytest.raises(InvariantError, match="block 1 is not in the free queue"):
        queue.remove(blocks[1])
    assert order(queue) == [0, 2]
    assert blocks[1].prev_free_block is None
    assert blocks[1].next_free_block is None


@pytest.mark.parametrize("end", ["prev_free_block", "next_free_block"])
def test_a_half_linked_block_is_not_queued(end):
    block = KVCacheBlock(9)
    setattr(block, end, KVCacheBlock(8))
    with pytest.raises(InvariantError, match="block 9 is not in the free queue"):
        FreeBlockQueue([]).remove(block)
