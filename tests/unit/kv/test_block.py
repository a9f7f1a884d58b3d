import pytest

from octavo.errors import InvariantError
from octavo.kv.block import BlockCopy, KVCacheBlock
from octavo.kv.block_pool import BlockPool


def test_a_new_block_is_unheld_and_unhashed():
    """T01."""
    block = KVCacheBlock(7)
    assert (block.block_id, block.ref_cnt, block.block_hash) == (7, 0, None)
    assert block.prev_free_block is None
    assert block.next_free_block is None


def test_a_hashed_block_cannot_get_another_hash_and_loses_it_by_eviction():
    """T01."""
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    assert pool.commit([block], [b"one"]) == [block]
    assert pool.commit([block], [b"one"]) == []
    with pytest.raises(InvariantError, match="block 0 is hashed already"):
        pool.commit([block], [b"two"])
    assert block.block_hash == b"one"
    pool.evict(block)
    assert block.block_hash is None


def test_blocks_carry_no_dictionary():
    """T06."""
    assert not hasattr(KVCacheBlock(0), "__dict__")


def test_a_copy_names_source_and_destination():
    assert BlockCopy(src=3, dst=5) == (3, 5)
