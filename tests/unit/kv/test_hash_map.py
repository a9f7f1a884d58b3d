import pytest
from kv_harness import ids

from octavo.errors import InvariantError
from octavo.kv.block import KVCacheBlock
from octavo.kv.block_pool import BlockPool
from octavo.kv.hash_map import BlockHashToBlockMap


@pytest.fixture
def blocks():
    return [KVCacheBlock(block_id) for block_id in range(5)]


def test_duplicates_are_found_one_after_the_other(blocks):
    """T38."""
    findable = BlockHashToBlockMap()
    findable.insert(b"k", blocks[0])
    findable.insert(b"k", blocks[1])
    assert findable.get(b"k") is blocks[0]
    findable.remove(blocks[0])
    assert findable.get(b"k") is blocks[1]
    with pytest.raises(InvariantError, match="block 2 is not in the hash map"):
        findable.remove(blocks[2])
    assert findable.get(b"k") is blocks[1]
    findable.remove(blocks[1])
    assert findable.get(b"k") is None
    assert b"k" not in findable


def test_removing_a_duplicate_leaves_the_first(blocks):
    findable = BlockHashToBlockMap()
    for block in blocks[:4]:
        findable.insert(b"k", block)
    findable.remove(blocks[2])
    assert blocks[2].block_hash is None
    assert ids(findable.blocks_of(b"k")) == [0, 1, 3]
    findable.remove(blocks[0])
    assert ids(findable.blocks_of(b"k")) == [1, 3]
    assert findable.get(b"k") is blocks[1]
    assert findable.blocks_of(b"other") == []


def test_evicting_one_of_two_blocks_keeps_their_content_findable():
    """T39."""
    pool = BlockPool(4)
    blocks = pool.allocate(4)
    pool.commit(blocks, [b"same", b"x", b"y", b"same"])
    pool.evict(blocks[0])
    assert pool.cached_blocks.get(b"same") is blocks[3]
    pool.evict(blocks[3])
    assert pool.cached_blocks.get(b"same") is None
    assert len(pool.cached_blocks) == 2


def test_a_prefix_ends_at_the_first_unknown_hash(blocks):
    findable = BlockHashToBlockMap()
    for block, block_hash in zip(blocks[:3], (b"a", b"b", b"d"), strict=True):
        findable.insert(block_hash, block)
    assert ids(findable.longest_prefix([b"a", b"b", b"c", b"d"])) == [0, 1]
    assert ids(findable.longest_prefix([b"a"])) == [0]
    assert findable.longest_prefix([]) == []


def test_removing_several_blocks_leaves_their_duplicates(blocks):
    findable = BlockHashToBlockMap()
    for block, block_hash in zip(blocks[:4], (b"a", b"b", b"a", b"c"), strict=True):
        findable.insert(block_hash, block)
    findable.remove_findable([blocks[4], blocks[0], blocks[1]])
    assert [block.block_hash for block in blocks] == [None, None, b"a", b"c", None]
    assert [findable.get(block_hash) for block_hash in (b"a", b"b", b"c")] == [blocks[2], None, blocks[3]]
    findable.remove_findable([blocks[2]])
    assert len(findable) == 1
    blocks[4].block_hash = b"c"
    with pytest.raises(InvariantError, match="block 4 claims hash 63, but the map disagrees"):
        findable.remove_findable([blocks[4]])


def test_clearing_unhashes_every_block(blocks):
    findable = BlockHashToBlockMap()
    findable.insert(b"k", blocks[0])
    findable.insert(b"k", blocks[1])
    findable.insert(b"j", blocks[2])
    assert ids(sorted(findable.blocks(), key=lambda block: block.block_id)) == [0, 1, 2]
    assert len(findable) == 2
    findable.clear()
    assert len(findable) == 0
    assert list(findable.blocks()) == []
    assert [block.block_hash for block in blocks] == [None] * 5
    findable.insert(b"k", blocks[3])
    assert ids(findable.blocks_of(b"k")) == [3]


def test_a_block_is_inserted_once(blocks):
    findable = BlockHashToBlockMap()
    findable.insert(b"k", blocks[0])
    with pytest.raises(InvariantError, match=f"block 0 is hashed already and cannot become {'6a' * 4}$"):
        findable.insert(b"j" * 32, blocks[0])
    assert b"j" * 32 not in findable


def test_a_block_that_claims_a_foreign_hash_is_refused(blocks):
    findable = BlockHashToBlockMap()
    block_hash = b"k" * 32
    blocks[3].block_hash = block_hash
    with pytest.raises(InvariantError, match="block 3 is not in the hash map"):
        findable.remove(blocks[3])
    findable.insert(block_hash, blocks[0])
    with pytest.raises(InvariantError, match="block 3 claims hash 6b6b6b6b, but the map disagrees"):
        findable.remove(blocks[3])
    findable.insert(block_hash, blocks[1])
    with pytest.raises(InvariantError, match="block 3 claims hash 6b6b6b6b, but the map disagrees"):
        findable.remove(blocks[3])
    assert ids(findable.blocks_of(block_hash)) == [0, 1]
