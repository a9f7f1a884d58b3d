import pytest
from kv_harness import FakeRequest, admit, compute, free_ids, ref_cnts

from octavo.errors import ConfigError, InvariantError
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import NO_HIT


def make_manager(num_blocks=10, block_size=16, **options):
    return KVCacheManager(num_blocks=num_blocks, block_size=block_size, **options)


@pytest.mark.parametrize(
    ("num_lookahead_tokens", "num_blocks"), [(0, 1), (1, 1), (2, 2), (4, 2), (5, 2), (6, 3)]
)
def test_lookahead_slots_are_reserved_behind_the_new_tokens(num_lookahead_tokens, num_blocks):
    """T42."""
    manager = make_manager(block_size=4)
    request = FakeRequest("1", range(3), block_size=4)
    new_ids = manager.allocate(request, 3, num_lookahead_tokens=num_lookahead_tokens)
    assert new_ids == list(range(num_blocks))


def test_lookahead_slots_are_used_before_new_blocks():
    """S4.2: what is held in excess is not asked for again."""
    manager = make_manager(block_size=4)
    request = FakeRequest("1", range(3), block_size=4)
    manager.allocate(request, 3, num_lookahead_tokens=9)
    request.num_computed_tokens = 3
    assert manager.block_ids("1") == [0, 1, 2]
    assert manager.allocate(request, 1) == []
    assert manager.allocate(request, 1, num_lookahead_tokens=8) == []
    assert manager.allocate(request, 1, num_lookahead_tokens=9) == [3]


def test_lookahead_counts_in_the_tail_block_too():
    manager = make_manager(block_size=4)
    request = FakeRequest("1", range(2), block_size=4)
    admit(manager, request)
    request.append(2)
    assert manager.allocate(request, 1, num_lookahead_tokens=1) == []
    assert manager.allocate(request, 1, num_lookahead_tokens=2) == [1]


@pytest.mark.parametrize("held", [False, True])
def test_asking_for_nothing_is_an_error(held):
    """T43."""
    manager = make_manager()
    request = FakeRequest("1", range(20))
    if held:
        admit(manager, request, 10)
    with pytest.raises(InvariantError, match="slots for no tokens are asked for 1"):
        manager.allocate(request, 0)


@pytest.mark.parametrize(("num_new_tokens", "num_lookahead_tokens"), [(-1, 0), (1, -1), (-1, 2)])
@pytest.mark.parametrize("held", [False, True])
def test_negative_numbers_are_errors(num_new_tokens, num_lookahead_tokens, held):
    """I7."""
    manager = make_manager()
    request = FakeRequest("1", range(20))
    if held:
        admit(manager, request, 10)
    before = free_ids(manager)
    with pytest.raises(InvariantError, match=f"slots for {num_new_tokens} tokens and {num_lookahead_tokens}"):
        manager.allocate(request, num_new_tokens, num_lookahead_tokens=num_lookahead_tokens)
    assert free_ids(manager) == before


def test_a_hit_can_be_taken_over_without_new_tokens():
    """S4.9."""
    manager = make_manager()
    admit(manager, FakeRequest("1", range(32)))
    request = FakeRequest("2", range(33))
    assert manager.allocate(request, 0, hit=manager.lookup(request)) == []
    assert manager.block_ids("2") == [0, 1]
    assert manager.req_to_blocks["2"].num_committed_blocks == 2


def test_a_prompt_in_chunks_gets_blocks_as_it_goes():
    manager = make_manager()
    request = FakeRequest("1", range(50))
    assert admit(manager, request, 10)[1] == [0]
    assert compute(manager, request, 6) == []
    assert compute(manager, request, 17) == [1, 2]
    assert compute(manager, request) == [3]
    assert manager.block_ids("1") == [0, 1, 2, 3]


def test_too_much_is_refused_with_nothing_changed():
    """S4.1."""
    manager = make_manager(num_blocks=4)
    request = FakeRequest("1", range(40))
    admit(manager, request)
    request.append(*range(100, 140))
    before = free_ids(manager), ref_cnts(manager), manager.block_ids("1")
    assert manager.allocate(request, 40) is None
    assert (free_ids(manager), ref_cnts(manager), manager.block_ids("1")) == before
    assert manager.allocate(request, 24) == [3]


def test_slots_end_at_the_longest_sequence():
    """S4.2."""
    manager = make_manager(block_size=4, max_model_len=10)
    request = FakeRequest("1", range(8), block_size=4)
    assert manager.allocate(request, 8, num_lookahead_tokens=20) == [0, 1, 2]


def test_the_watermark_is_left_to_running_requests():
    """T64."""
    manager = make_manager(num_blocks=20, watermark=0.1)
    running = FakeRequest("running", range(160))
    admit(manager, running)
    waiting = FakeRequest("waiting", range(1000, 1144))
    assert manager.allocate(waiting, 144, respect_watermark=True) is None
    assert manager.allocate(waiting, 128, respect_watermark=True) is not None
    assert manager.num_free_blocks == 2
    assert manager.allocate(running, 16) is not None
    manager.free(waiting)
    assert manager.allocate(waiting, 144) is not None
    assert manager.num_free_blocks == 0


def test_the_watermark_holds_for_a_request_with_a_table_as_well():
    manager = make_manager(num_blocks=2, watermark=0.5)
    request = FakeRequest("1", range(20))
    admit(manager, request, 10)
    assert manager.allocate(request, 10, respect_watermark=True) is None
    assert manager.allocate(request, 10) == [1]


def test_a_whole_sequence_must_fit_if_asked_for():
    """T65."""
    manager = make_manager(num_blocks=4)
    request = FakeRequest("1", range(256))
    assert manager.allocate(request, 16, whole_sequence=True) is None
    assert manager.allocate(request, 16) == [0]
    manager.free(request)
    fitting = FakeRequest("2", range(64))
    assert manager.allocate(fitting, 16, whole_sequence=True) is not None
    assert len(manager.block_ids("2")) == 1


def test_the_gate_counts_hits_lookahead_and_watermark():
    manager = make_manager(num_blocks=4, watermark=0.25)
    first = FakeRequest("1", range(32))
    admit(manager, first)
    second = FakeRequest("2", range(64))
    hit = manager.lookup(second)
    assert hit.num_tokens == 32
    assert manager.allocate(second, 16, hit=hit, whole_sequence=True, respect_watermark=True) is None
    assert manager.allocate(second, 16, hit=hit, whole_sequence=True) == [2]


def test_the_gate_holds_for_a_request_with_a_table_as_well():
    manager = make_manager(num_blocks=2)
    request = FakeRequest("1", range(40))
    admit(manager, request, 10)
    assert manager.allocate(request, 2, whole_sequence=True) is None
    assert manager.allocate(request, 2) == []


def test_reserved_blocks_are_not_touched():
    """T66."""
    manager = make_manager()
    request = FakeRequest("1", range(128))
    assert manager.allocate(request, 16, reserved_blocks=10) is None
    assert manager.allocate(request, 16, reserved_blocks=4, whole_sequence=True) == [0]
    request.num_computed_tokens = 16
    assert manager.allocate(request, 16, reserved_blocks=9) is None
    assert manager.allocate(request, 16, reserved_blocks=8) == [1]


def test_reserved_blocks_are_kept_from_a_request_with_room_in_its_tail_as_well():
    manager = make_manager(num_blocks=1)
    request = FakeRequest("1", range(12))
    admit(manager, request, 10)
    assert manager.allocate(request, 2, reserved_blocks=1) is None


@pytest.mark.parametrize(
    ("num_tokens", "num_held", "fits"), [(1600, 0, False), (1584, 0, True), (1584, 50, False)]
)
def test_verdicts_with_a_watermark(num_tokens, num_held, fits):
    """T92, as far as it applies: of 100 blocks, one is kept free while others run."""
    manager = make_manager(num_blocks=100, watermark=0.01)
    if num_held:
        admit(manager, FakeRequest("held", range(5000, 5000 + num_held * 16)))
    request = FakeRequest("1", range(num_tokens))
    assert (manager.allocate(request, num_tokens, respect_watermark=True) is not None) == fits


def test_the_estimate_is_what_the_allocator_takes():
    """S4.13."""
    manager = make_manager(num_blocks=12, block_size=4)
    parent = FakeRequest("1", range(10), block_size=4)
    admit(manager, parent)
    child = FakeRequest("2", range(10), block_size=4)
    manager.fork(parent, child, 9)
    child.num_computed_tokens = 9
    cached = FakeRequest("3", range(50, 58), block_size=4)
    admit(manager, cached)
    manager.free(cached)
    hitting = FakeRequest("4", range(50, 59), block_size=4)
    hit = manager.lookup(hitting)
    for request, num_tokens, hit_of, num_lookahead, expected in (
        (child, 1, NO_HIT, 0, 1),
        (parent, 3, NO_HIT, 4, 2),
        (hitting, 1, hit, 0, 3),
    ):
        free_before = manager.num_free_blocks
        manager.allocate(request, num_tokens, hit=hit_of, num_lookahead_tokens=num_lookahead)
        assert free_before - manager.num_free_blocks == expected


def test_a_hit_is_for_requests_without_blocks():
    manager = make_manager()
    admit(manager, FakeRequest("1", range(32)))
    request = FakeRequest("2", range(33))
    hit, _ = admit(manager, request)
    with pytest.raises(InvariantError, match="2 holds blocks and cannot take over a prefix hit"):
        manager.allocate(request, 1, hit=hit)


def test_computed_tokens_need_blocks():
    manager = make_manager()
    request = FakeRequest("1", range(32))
    request.num_computed_tokens = 16
    with pytest.raises(InvariantError, match="1 has 16 computed tokens, but no blocks"):
        manager.allocate(request, 16)


def test_free_is_a_no_op_for_a_request_without_blocks():
    """T46, S5.5."""
    manager = make_manager()
    request = FakeRequest("1", range(32))
    manager.free(request)
    admit(manager, request)
    manager.free(request)
    manager.free(request)
    assert free_ids(manager) == [2, 3, 4, 5, 6, 7, 8, 9, 1, 0]
    assert manager.req_to_blocks == {}


def test_table_changes_are_told_once():
    manager = make_manager()
    request = FakeRequest("1", range(20))
    admit(manager, request)
    assert manager.changed_from("1") == 0
    assert manager.take_table_changes("1") == (0, [0, 1])
    assert manager.changed_from("1") == 2
    assert manager.take_table_changes("1") == (2, [])
    request.append(*range(16))
    compute(manager, request)
    assert manager.take_table_changes("1") == (2, [2])


@pytest.mark.parametrize("method", ["block_ids", "changed_from", "take_table_changes"])
def test_a_request_without_blocks_has_no_table(method):
    with pytest.raises(InvariantError, match="1 holds no blocks"):
        getattr(make_manager(), method)("1")


def test_the_configuration_is_checked():
    with pytest.raises(ConfigError, match="block_size must be at least 1, got 0"):
        make_manager(block_size=0)
    for watermark in (-0.1, 1.0):
        with pytest.raises(ConfigError, match=f"watermark must be at least 0 and below 1, got {watermark}"):
            make_manager(watermark=watermark)
    with pytest.raises(ConfigError, match="num_blocks must be at least 1, got 0"):
        make_manager(num_blocks=0)
    smallest = make_manager(num_blocks=1, block_size=1)
    assert (smallest.num_blocks, smallest.block_size, smallest.enable_prefix_caching) == (1, 1, True)
    assert smallest.max_model_len is None
