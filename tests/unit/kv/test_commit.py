import pytest
from kv_harness import FakeRequest, admit, compute, free_ids, hashed_ids, ids

from octavo.errors import InvariantError
from octavo.kv.invariants import check_invariants
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import NO_HIT


@pytest.fixture
def manager():
    return KVCacheManager(num_blocks=10, block_size=4)


def make_request(request_id, token_ids, **options):
    return FakeRequest(request_id, token_ids, block_size=4, **options)


def test_a_block_is_findable_in_the_step_that_fills_it(manager):
    """S4.6."""
    first = make_request("1", range(9))
    manager.allocate(first, 9)
    assert manager.lookup(make_request("2", range(9))) == NO_HIT
    manager.commit(first, 7)
    assert manager.lookup(make_request("2", range(9))).num_tokens == 4
    manager.commit(first, 9)
    assert manager.lookup(make_request("2", range(9))).num_tokens == 8


def test_nothing_beyond_the_known_tokens_is_committed(manager):
    """S4.7."""
    request = make_request("1", range(6))
    manager.allocate(request, 6, num_lookahead_tokens=6)
    manager.commit(request, 12)
    assert hashed_ids(manager) == [0]


def test_a_block_is_committed_once(manager):
    request = make_request("1", range(8))
    admit(manager, request)
    manager.commit(request, 8)
    manager.commit(request, 0)
    assert hashed_ids(manager) == [0, 1]
    assert manager.req_to_blocks["1"].num_committed_blocks == 2


def test_a_block_that_was_hit_is_not_committed_again(manager):
    admit(manager, make_request("1", range(8)))
    hit, _ = admit(manager, make_request("2", range(13)))
    assert ids(hit.blocks) == [0, 1]
    assert hashed_ids(manager) == [0, 1, 2]


def test_committing_more_than_is_held_or_hashed_is_an_error(manager):
    request = make_request("1", range(12))
    manager.allocate(request, 4)
    with pytest.raises(
        InvariantError, match="2 blocks of 1 are to be committed, but it holds 1 and has hashes of 3"
    ):
        manager.commit(request, 8)
    manager.allocate(request, 12)
    request.block_hashes.pop()
    with pytest.raises(
        InvariantError, match="3 blocks of 1 are to be committed, but it holds 3 and has hashes of 2"
    ):
        manager.commit(request, 12)
    assert hashed_ids(manager) == []
    with pytest.raises(InvariantError, match="2 holds no blocks"):
        manager.commit(make_request("2", range(4)), 4)


def test_a_shared_block_that_one_holder_committed_is_as_good_for_the_other(manager):
    parent = make_request("1", range(8))
    admit(manager, parent, 6)
    child = make_request("2", range(8))
    manager.fork(parent, child, 4)
    child.num_computed_tokens = 4
    compute(manager, child)
    assert hashed_ids(manager) == [0, 2]
    manager.rollback_step()
    compute(manager, parent)
    assert hashed_ids(manager) == [0, 1, 2]


def test_what_somebody_else_committed_is_not_taken_back(manager):
    parent = make_request("1", range(6))
    admit(manager, parent, 3)
    child = make_request("2", range(6))
    manager.fork(parent, child, 3)
    child.num_computed_tokens = 3
    manager.free(parent)
    manager.block_pool.commit(manager.req_to_blocks["2"].blocks, child.block_hashes[:1])
    manager.commit(child, 4)
    assert manager.req_to_blocks["2"].num_committed_blocks == 1
    manager.rollback_step()
    assert hashed_ids(manager) == [0]


def test_a_failed_step_makes_its_blocks_unfindable(manager):
    kept = make_request("kept", range(4))
    admit(manager, kept)
    request = make_request("1", range(9))
    hit, _ = admit(manager, request, confirm=False)
    sharer = make_request("2", range(9))
    shared, _ = admit(manager, sharer, confirm=False)
    assert (hit.num_tokens, shared.num_tokens) == (4, 8)
    manager.rollback_step()
    assert hashed_ids(manager) == [0]
    for failed in (request, sharer):
        manager.free(failed)
    check_invariants(manager, [kept])
    assert manager.lookup(make_request("3", range(9))).num_tokens == 4


def test_a_failed_step_takes_back_what_requests_committed_that_are_gone(manager):
    request = make_request("1", range(9))
    admit(manager, request, confirm=False)
    manager.free(request)
    assert manager.lookup(make_request("2", range(9))).num_tokens == 8
    manager.rollback_step()
    assert manager.lookup(make_request("2", range(9))) == NO_HIT
    assert manager.num_free_blocks == 10


def test_a_failed_step_copes_with_blocks_that_were_handed_on(manager):
    small = KVCacheManager(num_blocks=2, block_size=4)
    first = make_request("1", range(8))
    admit(small, first, confirm=False)
    small.free(first)
    second = make_request("2", range(50, 57))
    admit(small, second, confirm=False)
    assert len(hashed_ids(small)) == 1
    small.rollback_step()
    assert hashed_ids(small) == []


def test_a_confirmed_step_stands(manager):
    request = make_request("1", range(9))
    admit(manager, request)
    manager.rollback_step()
    assert hashed_ids(manager) == [0, 1]


def test_a_request_that_is_tried_again_commits_again(manager):
    request = make_request("1", range(8))
    admit(manager, request, 4)
    compute(manager, request, confirm=False)
    manager.rollback_step()
    assert hashed_ids(manager) == [0]
    manager.commit(request, 8)
    assert hashed_ids(manager) == [0, 1]


def test_one_request_can_be_taken_out_of_a_step(manager):
    failing, other = make_request("1", range(8)), make_request("2", range(50, 58))
    admit(manager, failing, 4)
    compute(manager, failing, 2, confirm=False)
    compute(manager, failing, 2, confirm=False)
    admit(manager, other, confirm=False)
    manager.uncommit(failing)
    assert hashed_ids(manager) == [0, 2, 3]
    assert manager.req_to_blocks["1"].num_committed_blocks == 1
    manager.rollback_step()
    assert hashed_ids(manager) == [0]
    with pytest.raises(InvariantError, match="3 holds no blocks"):
        manager.uncommit(make_request("3", range(4)))


def test_reset_between_commit_and_rollback_leaves_later_commits_alone(manager):
    request = make_request("1", range(8))
    admit(manager, request, confirm=False)
    manager.free(request)
    assert manager.reset_prefix_cache()
    again = make_request("2", range(8))
    admit(manager, again)
    assert hashed_ids(manager) != []
    manager.rollback_step()
    assert len(hashed_ids(manager)) == 2


def test_a_prefix_is_in_flight_from_the_block_on_that_is_not_full_yet(manager):
    admit(manager, make_request("1", range(20)), 6)
    waiting = make_request("2", range(20))
    hit = manager.lookup(waiting)
    assert hit.num_tokens == 4
    assert manager.is_prefix_in_flight(waiting, NO_HIT) is False  # block 0 is there
    assert manager.is_prefix_in_flight(waiting, hit) is True  # block 1 is half full
    assert manager.is_prefix_in_flight(make_request("3", range(50, 70)), NO_HIT) is False


def test_a_waiting_request_follows_the_one_that_computes_its_prefix(manager):
    first = make_request("1", range(20))
    admit(manager, first, 4)
    waiting = make_request("2", range(20))
    assert manager.is_prefix_in_flight(waiting, manager.lookup(waiting))
    compute(manager, first, 8)
    assert manager.is_prefix_in_flight(waiting, manager.lookup(waiting))
    compute(manager, first, 4)
    hit = manager.lookup(waiting)
    assert hit.num_tokens == 16
    assert not manager.is_prefix_in_flight(waiting, hit)  # what is missing it has to compute itself anyway
    compute(manager, first)
    assert not manager.is_prefix_in_flight(waiting, manager.lookup(waiting))


def test_only_what_later_steps_compute_is_in_flight(manager):
    request = make_request("1", range(20))
    manager.allocate(request, 10)
    assert len(manager.prefixes_in_flight) == 3
    request.num_computed_tokens = 10
    manager.commit(request, 10)
    assert len(manager.prefixes_in_flight) == 3
    compute(manager, request, 6)
    assert len(manager.prefixes_in_flight) == 1
    compute(manager, request)
    assert len(manager.prefixes_in_flight) == 0


def test_nobody_waits_for_a_request_that_is_gone(manager):
    first = make_request("1", range(20))
    admit(manager, first, 4)
    waiting = make_request("2", range(20))
    manager.free(first)
    assert not manager.is_prefix_in_flight(waiting, manager.lookup(waiting))


def test_who_computes_everything_anyway_waits_for_nobody(manager):
    admit(manager, make_request("1", range(20)), 4)
    skipping = make_request("2", range(20), skip_prefix_lookup=True)
    assert not manager.is_prefix_in_flight(skipping, manager.lookup(skipping))


def test_the_free_queue_is_as_before_after_a_rollback(manager):
    request = make_request("1", range(8))
    before = free_ids(manager)
    admit(manager, request, confirm=False)
    manager.rollback_step()
    manager.free(request)
    assert free_ids(manager) == before
