"""The walk-through of the design: three requests, four blocks of four tokens, state by state."""

from kv_harness import FakeRequest, admit, free_ids, ref_cnts

from octavo.kv.manager import KVCacheManager


def letters(text):
    return [ord(letter) for letter in text.replace(" ", "")]


def findable(manager, *texts):
    """For each prefix, such as "ABCD EFGH", the block that ends it; ``None`` if it cannot be found."""
    hashes = [FakeRequest("", letters(text), block_size=4).block_hashes[-1] for text in texts]
    blocks = [manager.block_pool.cached_blocks.get(block_hash) for block_hash in hashes]
    return [None if block is None else block.block_id for block in blocks]


def tables(manager):
    return {request_id: table.block_ids for request_id, table in manager.req_to_blocks.items()}


def test_the_walk_through():
    manager = KVCacheManager(num_blocks=4, block_size=4)
    cached_blocks = manager.block_pool.cached_blocks

    # 0: A arrives, nothing is cached.
    a = FakeRequest("A", letters("ABCD EFGH IJKL"), block_size=4)
    hit, _ = admit(manager, a)
    assert hit.num_tokens == 0
    assert tables(manager) == {"A": [0, 1, 2]}
    assert ref_cnts(manager) == [1, 1, 1, 0]
    assert free_ids(manager) == [3]
    prefixes = ("ABCD", "ABCD EFGH", "ABCD EFGH IJKL")
    assert findable(manager, *prefixes) == [0, 1, 2]
    assert len(cached_blocks) == 3

    # 1: B arrives, 8 tokens are cached. Block 3 is not full, so it has no hash.
    b = FakeRequest("B", letters("ABCD EFGH XYZ"), block_size=4)
    hit, _ = admit(manager, b)
    assert hit.num_tokens == 8
    assert tables(manager) == {"A": [0, 1, 2], "B": [0, 1, 3]}
    assert ref_cnts(manager) == [2, 2, 1, 1]
    assert free_ids(manager) == []
    assert findable(manager, *prefixes) == [0, 1, 2]
    assert len(cached_blocks) == 3

    # 2: A finishes. Its last block can still be hit.
    manager.free(a)
    assert tables(manager) == {"B": [0, 1, 3]}
    assert ref_cnts(manager) == [1, 1, 0, 1]
    assert free_ids(manager) == [2]
    assert findable(manager, *prefixes) == [0, 1, 2]

    # 3: B finishes.
    manager.free(b)
    assert tables(manager) == {}
    assert ref_cnts(manager) == [0, 0, 0, 0]
    assert free_ids(manager) == [3, 2, 1, 0]
    assert findable(manager, *prefixes) == [0, 1, 2]

    # 4: C arrives, 8 tokens are cached. Only now is A's last block evicted.
    c = FakeRequest("C", letters("ABCD EFGH PPPP QQQQ"), block_size=4)
    hit, _ = admit(manager, c)
    assert hit.num_tokens == 8
    assert tables(manager) == {"C": [0, 1, 3, 2]}
    assert ref_cnts(manager) == [1, 1, 1, 1]
    assert free_ids(manager) == []
    assert findable(manager, *prefixes) == [0, 1, None]
    assert findable(manager, "ABCD EFGH PPPP", "ABCD EFGH PPPP QQQQ") == [3, 2]
    assert len(cached_blocks) == 4
