"""Every invariant is broken by hand once, and must be reported."""

import pytest
from kv_harness import FakeRequest, admit

from octavo.errors import InvariantError
from octavo.kv.block import KVCacheBlock
from octavo.kv.invariants import check_invariants, dump
from octavo.kv.manager import KVCacheManager


@pytest.fixture
def request_a():
    return FakeRequest("A", range(10), block_size=4)


@pytest.fixture
def manager(request_a):
    manager = KVCacheManager(num_blocks=6, block_size=4)
    admit(manager, request_a)
    freed = FakeRequest("B", range(50, 54), block_size=4)
    admit(manager, freed)
    manager.free(freed)
    check_invariants(manager, [request_a])
    return manager


def broken(manager, *requests):
    with pytest.raises(InvariantError) as caught:
        check_invariants(manager, requests)
    message = str(caught.value)
    assert message.endswith(dump(manager))
    return message.removesuffix(dump(manager)).splitlines()


def test_a_dump_shows_tables_references_queue_and_map(manager, request_a):
    manager.step_log.pins[1] += 1
    short = [block_hash.hex()[:8] for block_hash in request_a.block_hashes]
    lines = dump(manager).splitlines()
    assert lines[:5] == [
        "block tables (1):",
        "  A: [0, 1, 2]",
        "block×references: 0×1 1×1 2×1",
        "pins: {1: 1}",
        "free queue (3): 4 5 3",
    ]
    assert lines[5].startswith(f"hash map: {short[0]}→0 {short[1]}→1 ")
    assert lines[5].endswith("→3")


def test_a_reference_nobody_holds(manager):
    manager.block_pool.blocks[1].ref_cnt = 2
    assert broken(manager) == [
        "block 1 has 2 references, but 1 holders",
        "1 blocks are shared, but 0 are counted as shared",
    ]


def test_a_pin_without_reference(manager):
    manager.step_log.pins[0] = 1
    assert broken(manager) == ["block 0 has 1 references, but 2 holders"]


def test_a_negative_reference_count(manager):
    manager.block_pool.blocks[4].ref_cnt = -1
    assert broken(manager)[0] == "block 4 has -1 references, but 0 holders"


def test_a_queue_that_differs_by_direction(manager):
    manager.block_pool.blocks[5].prev_free_block = manager.block_pool.free_block_queue.head
    assert broken(manager) == ["the free queue is [4, 5, 3] forwards, but [3, 5] backwards"]


def test_a_miscounted_queue(manager):
    manager.block_pool.free_block_queue.num_free_blocks = 2
    assert broken(manager) == ["the free queue counts 2 blocks, but has 3"]


def test_a_lost_block(manager):
    manager.block_pool.free_block_queue.popleft()
    assert broken(manager) == ["the free queue is [5, 3], but the blocks nobody holds are [3, 4, 5]"]


def test_a_queue_that_loops(manager):
    blocks = manager.block_pool.blocks
    blocks[3].next_free_block = blocks[4]
    messages = broken(manager)
    assert "the free queue counts 3 blocks, but has 7" in messages
    assert "the free queue is [4, 5, 3, 4, 5, 3, 4], but the blocks nobody holds are [3, 4, 5]" in messages


def test_a_queue_that_loops_backwards(manager):
    blocks = manager.block_pool.blocks
    blocks[4].prev_free_block = blocks[3]
    assert broken(manager) == ["the free queue is [4, 5, 3] forwards, but [3, 5, 4, 3, 5, 4, 3] backwards"]


@pytest.mark.parametrize("end", ["prev_free_block", "next_free_block"])
def test_a_torn_queue(manager, end):
    setattr(manager.block_pool.blocks[5], end, None)
    assert broken(manager)[0].startswith("the free queue is ")


def test_a_hash_the_map_does_not_know(manager):
    manager.block_pool.blocks[2].block_hash = b"\xab" * 32
    assert broken(manager) == ["blocks [0, 1, 2, 3] are hashed, but [0, 1, 3] are in the hash map"]


def test_a_map_entry_under_a_foreign_hash(manager):
    manager.block_pool.blocks[0].block_hash = b"\xab" * 32
    assert broken(manager) == ["block 0 is in the hash map, but not under its hash abababab"]


def test_a_map_entry_without_hash(manager):
    manager.block_pool.blocks[0].block_hash = None
    assert broken(manager) == [
        "block 0 is in the hash map, but not under its hash -",
        "blocks [1, 3] are hashed, but [0, 1, 3] are in the hash map",
    ]


def test_a_block_twice_in_a_table(manager):
    table = manager.req_to_blocks["A"]
    table.blocks.append(table.blocks[0])
    assert broken(manager) == [
        "block 0 has 1 references, but 2 holders",
        "the table of A has a block twice: [0, 1, 2, 0]",
    ]


@pytest.mark.parametrize("counter", ["num_committed_blocks", "changed_from"])
def test_counters_beyond_the_table(manager, counter):
    setattr(manager.req_to_blocks["A"], counter, 4)
    assert broken(manager) == ["the table of A is shorter than what was committed or read of it"]


def test_a_stranger_in_flight(manager):
    manager.prefixes_in_flight.start("C", [b"k"], 0)
    assert broken(manager) == ["prefixes of ['C'] are in flight, but these hold no blocks"]


def test_a_block_of_another_prefix_in_a_table(manager, request_a):
    """I6."""
    stranger = FakeRequest("A", range(4, 14), block_size=4)
    check_invariants(manager)
    assert broken(manager, stranger) == [
        "entry 0 of A is block 0, hashed as another prefix",
        "entry 1 of A is block 1, hashed as another prefix",
    ]
    check_invariants(manager, [request_a, FakeRequest("D", range(9), block_size=4)])


def test_every_table_and_every_request_is_reported(manager, request_a):
    table = manager.req_to_blocks["A"]
    table.changed_from = 4
    table.blocks[0], table.blocks[1] = table.blocks[1], table.blocks[0]
    assert broken(manager, request_a) == [
        "the table of A is shorter than what was committed or read of it",
        "entry 0 of A is block 1, hashed as another prefix",
        "entry 1 of A is block 0, hashed as another prefix",
    ]


def test_a_hashed_block_where_the_request_has_no_full_one(manager):
    shorter = FakeRequest("A", range(7), block_size=4)
    assert broken(manager, shorter) == ["entry 1 of A is block 1, hashed as another prefix"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ref_cnt", 1),
        ("block_hash", b"k"),
        ("prev_free_block", KVCacheBlock(0)),
        ("next_free_block", KVCacheBlock(0)),
    ],
)
def test_a_null_block_in_use(manager, name, value):
    setattr(manager.block_pool.null_block, name, value)
    assert broken(manager) == ["the null block, 6, is counted, hashed or queued"]
