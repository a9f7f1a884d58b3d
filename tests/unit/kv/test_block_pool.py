import pytest
from kv_harness import free_ids, ids

from octavo.errors import ConfigError, InvariantError
from octavo.kv.block_pool import BlockPool


def test_blocks_are_handed_out_in_order_with_one_holder():
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    assert ids(blocks) == [0, 1, 2]
    assert [block.ref_cnt for block in blocks] == [1, 1, 1]
    assert (pool.num_blocks, pool.num_free_blocks, pool.usage) == (4, 1, 0.75)


def test_the_null_block_is_an_extra_one_that_nothing_touches():
    """T41."""
    pool = BlockPool(10)
    null_block = pool.null_block
    assert null_block.block_id == 10
    assert (pool.num_blocks, pool.usage) == (10, 0.0)
    held = pool.allocate(4)
    assert pool.usage == pytest.approx(0.4)
    pool.acquire([null_block, held[0]])
    assert held[0].ref_cnt == 2
    pool.release([held[0]])
    pool.release([null_block])
    pool.release([held[3], null_block])
    assert (null_block.ref_cnt, null_block.block_hash, null_block.next_free_block) == (0, None, None)
    assert ids(pool.allocate(7)) == [3, 4, 5, 6, 7, 8, 9]
    with pytest.raises(InvariantError, match="block 10 is committed, but nobody holds it"):
        pool.commit([null_block], [b"k"])


@pytest.mark.parametrize("num_blocks", [-1, 3])
def test_too_many_or_fewer_than_no_blocks_are_refused(num_blocks):
    pool = BlockPool(2)
    with pytest.raises(InvariantError):
        pool.allocate(num_blocks)
    assert free_ids(pool) == [0, 1]


def test_release_frees_the_end_first_findable_blocks_to_the_tail_others_to_the_front():
    pool = BlockPool(6)
    blocks = pool.allocate(5)
    pool.commit(blocks[:2], [b"a", b"b"])
    pool.release(blocks)
    assert free_ids(pool) == [2, 3, 4, 5, 1, 0]
    assert pool.num_free_blocks == 6
    assert [block.ref_cnt for block in blocks] == [0] * 5


def test_shared_blocks_stay_with_their_other_holders():
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    pool.acquire(blocks[:2])
    pool.release(blocks)
    assert [block.ref_cnt for block in blocks] == [1, 1, 0]
    assert free_ids(pool) == [2, 3]


def test_acquiring_takes_a_free_block_out_of_the_queue_with_its_content():
    pool = BlockPool(3)
    blocks = pool.allocate(2)
    pool.commit(blocks[:1], [b"a"])
    pool.release(blocks)
    pool.acquire([blocks[0]])
    assert free_ids(pool) == [1, 2]
    assert (blocks[0].ref_cnt, blocks[0].block_hash) == (1, b"a")


def test_releasing_what_nobody_holds_changes_nothing():
    pool = BlockPool(3)
    blocks = pool.allocate(2)
    pool.release([blocks[1]])
    with pytest.raises(InvariantError, match="block 1 is released, but nobody holds it"):
        pool.release(blocks)
    assert blocks[0].ref_cnt == 1
    assert free_ids(pool) == [1, 2]


def test_eviction_is_lazy():
    """S4.5."""
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.commit([block], [b"a"])
    pool.release([block])
    assert pool.cached_blocks.get(b"a") is block
    pool.allocate(1)
    assert pool.cached_blocks.get(b"a") is None
    assert block.block_hash is None


def test_eviction_by_hand_leaves_the_holder_alone():
    """S5.8."""
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.commit([block], [b"a"])
    pool.evict(block)
    pool.evict(block)
    assert (block.ref_cnt, block.block_hash) == (1, None)
    assert free_ids(pool) == [1]


def test_a_free_block_is_not_committed():
    pool = BlockPool(1)
    with pytest.raises(InvariantError, match="block 0 is committed, but nobody holds it"):
        pool.commit(pool.blocks, [b"a"])
    assert len(pool.cached_blocks) == 0


def test_every_block_is_committed_with_a_hash_of_its_own():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="shorter"):
        pool.commit(pool.allocate(2), [b"a"])


def test_reset_only_when_nothing_is_held():
    """T40."""
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.commit([block], [b"a"])
    assert not pool.reset()
    assert block.block_hash == b"a"
    pool.release([block])
    assert pool.reset()
    assert block.block_hash is None
    assert len(pool.cached_blocks) == 0


def test_a_pool_has_at_least_one_block():
    assert BlockPool(1).num_blocks == 1
    with pytest.raises(ConfigError, match="num_blocks must be at least 1, got 0"):
        BlockPool(0)
