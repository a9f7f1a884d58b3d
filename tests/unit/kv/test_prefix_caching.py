"""Allocate, hit, free, evict: the timetables of the behavioural specification, ids counted from 0."""

import pytest
from kv_harness import FakeRequest, admit, compute, free_ids, hashed_ids, ids, ref_cnts

from octavo.errors import InvariantError
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import NO_HIT

COMMON = [token for token in range(3) for _ in range(16)]  # three full blocks


def make_manager(num_blocks=10, block_size=16, **options):
    return KVCacheManager(num_blocks=num_blocks, block_size=block_size, **options)


def test_prefill_shares_frees_revives_and_evicts():
    """T25, T26, T27, T28, T29."""
    manager = make_manager()
    first = FakeRequest("1", [*COMMON, *[3] * 7])
    hit, new_ids = admit(manager, first)
    assert (hit, new_ids) == (NO_HIT, [0, 1, 2, 3])
    assert hashed_ids(manager) == [0, 1, 2]
    assert ref_cnts(manager)[:4] == [1, 1, 1, 1]

    second = FakeRequest("2", [*COMMON, *[3] * 5])
    hit, new_ids = admit(manager, second)
    assert (ids(hit.blocks), hit.num_tokens, new_ids) == ([0, 1, 2], 48, [4])
    assert ref_cnts(manager)[:5] == [2, 2, 2, 1, 1]
    assert manager.num_free_blocks == 5

    manager.free(first)
    manager.free(second)
    assert free_ids(manager) == [4, 3, 5, 6, 7, 8, 9, 2, 1, 0]

    third = FakeRequest("3", [*COMMON, *[3] * 6])
    hit, new_ids = admit(manager, third)
    assert (ids(hit.blocks), new_ids) == ([0, 1, 2], [4])
    assert manager.num_free_blocks == 6

    manager.free(third)
    unrelated = FakeRequest("4", [99] * 160)
    hit, new_ids = admit(manager, unrelated)
    assert (hit, new_ids) == (NO_HIT, [4, 3, 5, 6, 7, 8, 9, 2, 1, 0])
    assert len(manager.block_pool.cached_blocks) == 10
    assert manager.lookup(FakeRequest("5", [*COMMON, 3])) == NO_HIT


def test_decode_allocates_and_hashes_when_a_block_is_full():
    """T30."""
    manager = make_manager()
    request = FakeRequest("0", [*COMMON, *[3] * 7])
    admit(manager, request)
    request.append(*[8] * 4)
    assert compute(manager, request) == []
    assert hashed_ids(manager) == [0, 1, 2]
    request.append(*[7] * 19)
    assert compute(manager, request) == [4]
    assert hashed_ids(manager) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("num_tokens", "num_hit_tokens"), [(48, 32), (49, 48), (33, 32), (17, 16), (16, 0), (1, 0)]
)
def test_at_least_the_last_token_is_computed(num_tokens, num_hit_tokens):
    """T31."""
    manager = make_manager()
    admit(manager, FakeRequest("1", range(48)))
    assert manager.lookup(FakeRequest("2", range(num_tokens))).num_tokens == num_hit_tokens


def test_eviction_starts_at_the_end_of_the_oldest_chain():
    """T32."""
    manager = make_manager()
    a, b = FakeRequest("a", range(5 * 16 + 7)), FakeRequest("b", range(200, 248))
    assert admit(manager, a)[1] == [0, 1, 2, 3, 4, 5]
    assert admit(manager, b)[1] == [6, 7, 8]
    assert manager.num_free_blocks == 1
    manager.free(a)
    assert free_ids(manager) == [5, 9, 4, 3, 2, 1, 0]
    manager.free(b)
    assert free_ids(manager) == [5, 9, 4, 3, 2, 1, 0, 8, 7, 6]
    hit, new_ids = admit(manager, FakeRequest("c", range(35)))
    assert (ids(hit.blocks), new_ids) == ([0, 1], [5])
    assert manager.num_free_blocks == 7


def test_a_reused_block_is_found_no_more():
    """T33."""
    manager = make_manager(num_blocks=1)
    request = FakeRequest("1", range(16))
    admit(manager, request)
    manager.free(request)
    _, new_ids = admit(manager, FakeRequest("2", range(15)))
    assert new_ids == [0]
    assert manager.block_pool.blocks[0].block_hash is None
    assert len(manager.block_pool.cached_blocks) == 0


def test_what_is_hit_is_not_evicted_by_the_same_allocation():
    """T34."""
    manager = make_manager(num_blocks=2)
    x, y = FakeRequest("x", range(16)), FakeRequest("y", range(16, 32))
    admit(manager, x)
    admit(manager, y)
    manager.free(x)
    manager.free(y)
    hit, new_ids = admit(manager, FakeRequest("xy", range(32)))
    assert (ids(hit.blocks), new_ids) == ([0], [1])


def test_hits_in_the_free_queue_count_as_capacity():
    """T35."""
    manager = make_manager()
    holder = FakeRequest("0", COMMON)
    admit(manager, holder)
    longer = FakeRequest("1", COMMON * 2)
    hit, _ = admit(manager, longer)
    assert hit.num_tokens == 48
    manager.free(longer)
    admit(manager, FakeRequest("2", [7] * 32))
    before = ref_cnts(manager), free_ids(manager), hashed_ids(manager)
    hit, new_ids = admit(manager, FakeRequest("3", COMMON * 3))
    assert (hit.num_tokens, new_ids) == (96, None)
    assert [block.ref_cnt for block in hit.blocks] == [1, 1, 1, 0, 0, 0]
    assert manager.num_free_blocks == 5
    assert (ref_cnts(manager), free_ids(manager), hashed_ids(manager)) == before
    assert "3" not in manager.req_to_blocks


def test_without_prefix_caching_nothing_is_stored_or_found():
    """T36."""
    manager = make_manager(num_blocks=4, block_size=4, enable_prefix_caching=False)
    first = FakeRequest("1", range(10), block_size=4)
    assert admit(manager, first) == (NO_HIT, [0, 1, 2])
    manager.free(first)
    hit, new_ids = admit(manager, FakeRequest("2", range(16), block_size=4))
    assert (hit, len(new_ids)) == (NO_HIT, 4)
    assert hashed_ids(manager) == []
    assert admit(manager, FakeRequest("3", range(4), block_size=4)) == (NO_HIT, None)


def test_without_prefix_caching_nothing_is_in_flight():
    manager = make_manager(num_blocks=4, block_size=4, enable_prefix_caching=False)
    admit(manager, FakeRequest("1", range(10), block_size=4), 4)
    assert len(manager.prefixes_in_flight) == 0
    unhashed = FakeRequest("2", range(10), block_size=4)
    unhashed.block_hashes.clear()  # nobody needs hashes then
    assert manager.is_prefix_in_flight(unhashed, NO_HIT) is False
    assert admit(manager, unhashed) == (NO_HIT, [1, 2, 3])


def test_a_request_that_skips_the_lookup_computes_and_stores_everything():
    """T37."""
    manager = make_manager()
    first = FakeRequest("0", [*COMMON, *[3] * 7])
    admit(manager, first)
    skipping = FakeRequest("1", [*COMMON, *[3] * 7], skip_prefix_lookup=True)
    hit, new_ids = admit(manager, skipping)
    assert (hit, new_ids) == (NO_HIT, [4, 5, 6, 7])
    blocks = manager.block_pool.blocks
    assert [blocks[i].block_hash for i in (0, 1, 2)] == [blocks[i].block_hash for i in (4, 5, 6)]
    assert ref_cnts(manager)[:8] == [1] * 8


def test_reset_waits_until_nothing_is_in_use():
    """T40."""
    manager = make_manager()
    request = FakeRequest("0", [*COMMON, 3])
    admit(manager, request)
    assert not manager.reset_prefix_cache()
    assert hashed_ids(manager) == [0, 1, 2]
    manager.free(request)
    assert manager.reset_prefix_cache()
    assert len(manager.block_pool.cached_blocks) == 0
    assert all(block.block_hash is None for block in manager.block_pool.blocks)


def test_usage_is_the_share_of_blocks_in_use():
    """T41, S5.11."""
    manager = make_manager()
    request = FakeRequest("0", range(64))
    assert (manager.num_blocks, manager.usage) == (10, 0.0)
    admit(manager, request)
    assert manager.usage == pytest.approx(0.4)
    manager.free(request)
    assert manager.usage == 0.0
    assert manager.lookup(FakeRequest("1", range(65))).num_tokens == 64


def test_an_identical_prompt_in_the_same_step_is_computed_once():
    """T44, on the cache's side."""
    manager = make_manager(num_blocks=20)
    first, second = FakeRequest("1", range(100)), FakeRequest("2", range(100))
    admit(manager, first, confirm=False)
    hit, new_ids = admit(manager, second, confirm=False)
    assert second.num_tokens - hit.num_tokens == 4
    assert len(new_ids) == 1
    manager.confirm_step()
    assert manager.block_ids("1")[:6] == manager.block_ids("2")[:6]


def test_the_next_turn_finds_prompt_and_answer():
    """T45."""
    manager = make_manager(num_blocks=40)
    request = FakeRequest("1", range(100))
    admit(manager, request)
    for token_id in range(1000, 1200):
        request.append(token_id)
        compute(manager, request)
    manager.free(request)
    hit, _ = admit(manager, FakeRequest("2", request.token_ids))
    assert request.num_tokens - hit.num_tokens == 300 % 16 == 12


def test_a_resumed_request_finds_what_it_generated():
    """S3.6."""
    manager = make_manager()
    request = FakeRequest("1", range(30))
    admit(manager, request)
    request.append(*range(50, 60))
    compute(manager, request)
    manager.free(request)
    request.num_computed_tokens = 0
    hit, _ = admit(manager, request)
    assert hit.num_tokens == 32


def test_duplicates_are_kept_and_outlive_each_other():
    """S4.8."""
    manager = make_manager()
    first = FakeRequest("1", range(33))
    admit(manager, first)
    second = FakeRequest("2", range(33), skip_prefix_lookup=True)
    admit(manager, second)
    assert manager.block_ids("2") == [3, 4, 5]
    assert hashed_ids(manager) == [0, 1, 3, 4]
    manager.block_pool.evict(manager.block_pool.blocks[0])
    assert ids(manager.lookup(FakeRequest("3", range(33))).blocks) == [3, 1]


def test_lookup_changes_nothing():
    """S3.3."""
    manager = make_manager()
    request = FakeRequest("1", range(48))
    admit(manager, request)
    manager.free(request)
    before = ref_cnts(manager), free_ids(manager)
    assert manager.lookup(FakeRequest("2", range(48))).num_tokens == 32
    assert (ref_cnts(manager), free_ids(manager)) == before


def test_a_hit_makes_blocks_the_last_to_be_evicted():
    """S5.3: least recently used."""
    manager = make_manager(num_blocks=4)
    old, young = FakeRequest("old", range(32)), FakeRequest("young", range(100, 132))
    for request in (old, young):
        admit(manager, request)
        manager.free(request)
    assert free_ids(manager) == [1, 0, 3, 2]
    again = FakeRequest("again", range(17))
    admit(manager, again)
    manager.free(again)
    assert free_ids(manager) == [1, 3, 2, 0]


def test_a_hit_that_went_stale_is_refused():
    manager = make_manager(num_blocks=2)
    request = FakeRequest("1", range(16))
    admit(manager, request)
    manager.free(request)
    late = FakeRequest("2", range(17))
    hit = manager.lookup(late)
    other = FakeRequest("3", range(50, 82))
    admit(manager, other)
    manager.free(other)
    with pytest.raises(InvariantError, match="the prefix hit of 2 is stale"):
        manager.allocate(late, 1, hit=hit)
    assert manager.num_free_blocks == 2
