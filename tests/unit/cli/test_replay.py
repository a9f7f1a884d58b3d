"""The walk-through of docs/kv-cache.md, state by state, through the real cache manager."""

import pytest

from octavo.cli.replay import Picture, Replay, in_turn, letters, walk_through
from octavo.errors import InvalidRequestError


@pytest.fixture(scope="module")
def pictures() -> list[Picture]:
    return walk_through()


def ref_counts(picture: Picture) -> list[int]:
    return [block.ref_cnt for block in picture.blocks]


def test_an_empty_cache_hands_out_blocks_in_order(pictures):
    arrival = pictures[0]
    assert arrival.block_tables == {"A": [0, 1, 2]}
    assert ref_counts(arrival) == [1, 1, 1, 0]
    assert arrival.free_queue == [3]
    assert arrival.hash_map == {"ABCD": [0], "ABCD EFGH": [1], "ABCD EFGH IJKL": [2]}


def test_a_common_prefix_is_shared(pictures):
    arrival = pictures[1]
    assert arrival.block_tables == {"A": [0, 1, 2], "B": [0, 1, 3]}
    assert ref_counts(arrival) == [2, 2, 1, 1]
    assert arrival.free_queue == []
    assert arrival.hit_blocks == [0, 1]
    assert arrival.new_blocks == [3]
    assert not arrival.blocks[3].is_findable
    assert arrival.num_unfilled_slots == 1


def test_finishing_keeps_content_findable(pictures):
    first, second = pictures[2], pictures[3]
    assert (ref_counts(first), first.free_queue) == ([1, 1, 0, 1], [2])
    assert (ref_counts(second), second.free_queue) == ([0, 0, 0, 0], [3, 2, 1, 0])
    assert second.hash_map == pictures[0].hash_map


def test_eviction_happens_when_a_block_is_handed_out_again(pictures):
    arrival = pictures[4]
    assert arrival.block_tables == {"C": [0, 1, 3, 2]}
    assert ref_counts(arrival) == [1, 1, 1, 1]
    assert arrival.evicted == {2: "ABCD EFGH IJKL"}
    assert arrival.hash_map == {
        "ABCD": [0],
        "ABCD EFGH": [1],
        "ABCD EFGH PPPP QQQQ": [2],
        "ABCD EFGH PPPP": [3],
    }


def test_an_arrival_without_room_changes_nothing():
    replay = Replay(num_blocks=2, block_size=4)
    replay.arrive("A", letters("ABCDE"))
    assert replay.arrive("B", letters("XY")) is None
    assert replay.running == ["A"]


def test_the_oldest_makes_room():
    pictures = in_turn(Replay(num_blocks=2, block_size=4), [letters("ABCDE"), letters("VWXYZ")])
    assert [picture.event.split(":")[0] for picture in pictures] == [
        "A arrives",
        "A finishes and releases its blocks, the last one first.",
        "B arrives",
        "B finishes and releases its blocks, the last one first.",
    ]
    assert len(pictures[-1].free_queue) == 2


@pytest.mark.parametrize("text", ["", "ABCDEFGHI"])
def test_a_request_that_can_never_fit_is_refused_with_the_numbers(text):
    with pytest.raises(InvalidRequestError, match=rf"has {len(text)} tokens .* got 2"):
        Replay(num_blocks=2, block_size=4).arrive("A", letters(text))
