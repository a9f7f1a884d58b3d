import pytest
from kv_harness import FakeRequest, admit, compute, free_ids, hashed_ids, ref_cnts

from octavo.errors import InvariantError
from octavo.kv.block import BlockCopy
from octavo.kv.invariants import check_invariants
from octavo.kv.manager import KVCacheManager


def make_manager(num_blocks=10, **options):
    return KVCacheManager(num_blocks=num_blocks, block_size=4, **options)


def make_request(request_id, token_ids):
    return FakeRequest(request_id, token_ids, block_size=4)


def fork(manager, parent, request_id, num_tokens, token_ids=None):
    child = make_request(request_id, parent.token_ids if token_ids is None else token_ids)
    manager.fork(parent, child, num_tokens)
    child.num_computed_tokens = num_tokens
    return child


def distinct_blocks(manager):
    return {block_id for table in manager.req_to_blocks.values() for block_id in table.block_ids}


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_three_continuations_copy_the_tail_twice(enable_prefix_caching):
    """T91."""
    manager = make_manager(enable_prefix_caching=enable_prefix_caching)
    parent = make_request("0", range(7))
    admit(manager, parent)
    requests = [parent, fork(manager, parent, "1", 7), fork(manager, parent, "2", 7)]
    assert ref_cnts(manager)[:3] == [3, 3, 0]

    for number, request in enumerate(requests):
        request.append(100 + number)
        compute(manager, request, confirm=False)
    assert manager.take_block_copies() == [BlockCopy(1, 2), BlockCopy(1, 3)]
    assert manager.take_block_copies() == []
    assert [manager.block_ids(request.request_id) for request in requests] == [[0, 2], [0, 3], [0, 1]]
    assert len(distinct_blocks(manager)) == 4
    manager.confirm_step()
    assert ref_cnts(manager)[:4] == [3, 1, 1, 1]

    for number, request in enumerate(requests):
        request.append(200 + number)
        compute(manager, request, confirm=False)
    assert manager.take_block_copies() == []
    assert len(distinct_blocks(manager)) == 7
    check_invariants(manager, requests)


def test_full_shared_blocks_are_never_copied():
    """S9.2."""
    manager = make_manager()
    parent = make_request("0", range(8))
    admit(manager, parent)
    child = fork(manager, parent, "1", 8)
    child.append(50)
    assert compute(manager, child) == [2]
    assert manager.block_ids("1") == [0, 1, 2]
    assert manager.take_block_copies() == []


def test_a_hashed_tail_is_copied_while_it_is_shared_and_committed_again_when_full():
    manager = make_manager()
    parent = make_request("0", range(8))
    admit(manager, parent)
    child = fork(manager, parent, "1", 7)
    assert compute(manager, child, confirm=False) == [2]
    assert manager.take_block_copies() == [BlockCopy(1, 2)]
    assert manager.block_ids("1") == [0, 2]
    assert hashed_ids(manager) == [0, 1, 2]
    blocks = manager.block_pool.blocks
    assert blocks[1].block_hash == blocks[2].block_hash
    manager.rollback_step()
    assert hashed_ids(manager) == [0, 1]


def test_the_last_holder_of_a_hashed_tail_writes_in_place_what_is_then_not_found():
    """I5: the block would be found as what it held before."""
    manager = make_manager()
    parent = make_request("0", range(8))
    admit(manager, parent)
    child = fork(manager, parent, "1", 6, [*range(6), 70])
    manager.free(parent)
    assert manager.lookup(make_request("2", range(9))).num_tokens == 8
    assert compute(manager, child) == []
    assert manager.take_block_copies() == []
    assert hashed_ids(manager) == [0]
    child.append(71)
    compute(manager, child)
    assert manager.lookup(make_request("2", [*range(6), 70, 71, 0])).num_tokens == 8
    assert manager.lookup(make_request("2", range(9))).num_tokens == 4


def test_both_ends_of_a_copy_stay_held_until_the_step_is_over():
    """S4.14."""
    manager = make_manager(num_blocks=3)
    parent = make_request("0", range(6))
    admit(manager, parent)
    child = fork(manager, parent, "1", 6)
    child.append(50)
    compute(manager, child, confirm=False)
    assert manager.take_block_copies() == [BlockCopy(1, 2)]
    manager.free(parent)
    manager.free(child)
    assert free_ids(manager) == [0]
    assert ref_cnts(manager) == [0, 1, 1]
    assert manager.step_log.pins == {1: 1, 2: 1}
    check_invariants(manager)
    assert not manager.reset_prefix_cache()
    manager.confirm_step()
    assert manager.num_free_blocks == 3
    assert manager.step_log.pins == {}
    check_invariants(manager)


def test_a_copy_that_nobody_took_yet_outlives_a_confirmation():
    manager = make_manager()
    parent = make_request("0", range(6))
    admit(manager, parent)
    child = fork(manager, parent, "1", 6)
    child.append(50)
    compute(manager, child, confirm=False)
    manager.confirm_step()
    assert manager.step_log.pins == {1: 1, 2: 1}
    assert manager.take_block_copies() == [BlockCopy(1, 2)]
    manager.confirm_step()
    assert manager.step_log.pins == {}


@pytest.mark.parametrize("taken", [True, False])
def test_a_failed_step_lets_go_of_its_copies(taken):
    manager = make_manager()
    parent = make_request("0", range(6))
    admit(manager, parent)
    child = fork(manager, parent, "1", 6)
    child.append(50)
    compute(manager, child, confirm=False)
    if taken:
        manager.take_block_copies()
    manager.rollback_step()
    manager.free(child)
    assert manager.take_block_copies() == []
    assert ref_cnts(manager)[:3] == [1, 1, 0]
    assert manager.step_log.pins == {}
    check_invariants(manager, [parent])


def test_a_copy_needs_a_block():
    manager = make_manager(num_blocks=2)
    parent = make_request("0", range(6))
    admit(manager, parent)
    child = fork(manager, parent, "1", 6)
    child.append(50)
    assert manager.allocate(child, 1) is None
    assert manager.take_block_copies() == []
    assert ref_cnts(manager) == [2, 2]
    manager.free(parent)
    assert manager.allocate(child, 1) == []


def test_a_private_copy_is_not_copied_again_in_the_same_step():
    manager = make_manager()
    parent = make_request("0", range(5))
    admit(manager, parent)
    child = fork(manager, parent, "1", 5)
    child.append(50)
    assert compute(manager, child, confirm=False) == [2]
    child.append(51)
    assert compute(manager, child, confirm=False) == []
    assert manager.take_block_copies() == [BlockCopy(1, 2)]


def test_a_private_copy_is_told_as_a_table_change():
    manager = make_manager()
    parent = make_request("0", range(6))
    admit(manager, parent)
    child = fork(manager, parent, "1", 6)
    assert manager.take_table_changes("1") == (0, [0, 1])
    child.append(*range(50, 54))
    assert compute(manager, child) == [2, 3]
    assert manager.take_table_changes("1") == (1, [2, 3])


def test_every_shared_block_that_is_written_is_copied():
    """A child that starts over further back writes into more than one shared block."""
    manager = make_manager()
    parent = make_request("0", range(12))
    admit(manager, parent)
    child = fork(manager, parent, "1", 12)
    child.num_computed_tokens = 3
    assert compute(manager, child, confirm=False) == [3, 4, 5]
    assert manager.take_block_copies() == [BlockCopy(0, 3), BlockCopy(1, 4), BlockCopy(2, 5)]
    assert hashed_ids(manager) == [0, 1, 2, 3, 4, 5]


def test_a_fork_of_one_token_prompts_shares_nothing():
    manager = make_manager()
    parent = make_request("0", [1])
    admit(manager, parent)
    child = fork(manager, parent, "1", 0)
    assert manager.block_ids("1") == []
    assert compute(manager, child) == [1]


def test_a_fork_takes_no_block_beyond_its_tokens():
    manager = make_manager()
    parent = make_request("0", range(12))
    admit(manager, parent)
    fork(manager, parent, "1", 5)
    assert manager.block_ids("1") == [0, 1]
    assert manager.req_to_blocks["1"].num_committed_blocks == 1
    assert ref_cnts(manager)[:3] == [2, 2, 1]


def test_what_the_parent_has_not_committed_the_child_commits():
    manager = make_manager()
    parent = make_request("0", range(4))
    manager.allocate(parent, 4)
    parent.num_computed_tokens = 4
    child = fork(manager, parent, "1", 4)
    assert manager.req_to_blocks["1"].num_committed_blocks == 0
    child.append(50)
    compute(manager, child)
    assert hashed_ids(manager) == [0]


@pytest.mark.parametrize("num_tokens", [-1, 7])
def test_only_computed_tokens_can_be_shared(num_tokens):
    manager = make_manager()
    parent = make_request("0", range(8))
    admit(manager, parent, 6)
    with pytest.raises(InvariantError, match=f"1 is forked from {num_tokens} tokens of 0, of which 6 are"):
        manager.fork(parent, make_request("1", range(8)), num_tokens)
    assert ref_cnts(manager)[:2] == [1, 1]


def test_a_fork_needs_a_parent_with_blocks_and_a_child_without():
    manager = make_manager()
    parent, child = make_request("0", range(8)), make_request("1", range(8))
    with pytest.raises(InvariantError, match="0 holds no blocks"):
        manager.fork(parent, child, 4)
    admit(manager, parent)
    manager.fork(parent, child, 4)
    with pytest.raises(InvariantError, match="1 holds blocks already and cannot be forked into"):
        manager.fork(parent, child, 4)


def test_a_pruned_beam_gives_its_own_blocks_back_at_once():
    """S9.8."""
    manager = make_manager()
    parent = make_request("0", range(8))
    admit(manager, parent)
    loser = fork(manager, parent, "1", 8)
    loser.append(*range(50, 55))
    compute(manager, loser)
    assert manager.num_free_blocks == 6
    manager.free(loser)
    assert manager.num_free_blocks == 8
    assert manager.block_ids("0") == [0, 1]
