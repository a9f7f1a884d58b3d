"""The census agrees with a count of all blocks, whatever was done with them."""

import random

from kv_harness import FakeRequest, admit, compute

from octavo.kv.census import take_census
from octavo.kv.manager import KVCacheManager


def test_a_census_through_a_life_of_sharing_copying_and_eviction():
    manager = KVCacheManager(num_blocks=6, block_size=4)
    assert take_census(manager) == (6, 6, 0, 0, 0, 0, 0)
    parent = FakeRequest("parent", range(10), block_size=4)
    admit(manager, parent)
    assert take_census(manager) == (6, 3, 2, 0, 0, 0, 0)

    child = FakeRequest("child", range(10), block_size=4)
    manager.fork(parent, child, 10)
    child.num_computed_tokens = 10
    assert take_census(manager).num_shared == 3

    child.append(99)
    compute(manager, child, confirm=False)
    during = take_census(manager)
    assert (during.num_pinned, during.num_copies, during.num_free) == (2, 1, 2)
    manager.take_block_copies()
    manager.confirm_step()
    after = take_census(manager)
    assert (after.num_pinned, after.num_copies, after.num_shared, after.num_active) == (0, 1, 2, 4)

    manager.free(parent)
    manager.free(child)
    assert take_census(manager) == (6, 6, 2, 0, 0, 0, 1)
    admit(manager, FakeRequest("other", range(100, 124), block_size=4))
    full = take_census(manager)
    assert (full.num_evictions, full.num_cached, full.usage) == (2, 6, 1.0)


def test_counters_agree_with_a_count_after_random_work():
    draw = random.Random(5)
    manager = KVCacheManager(num_blocks=12, block_size=4)
    running: list[FakeRequest] = []
    for number in range(300):
        if running and draw.random() < 0.5:
            manager.free(running.pop(draw.randrange(len(running))))
        else:
            start = draw.choice((0, 0, 50))
            request = FakeRequest(str(number), range(start, start + draw.randrange(1, 20)), block_size=4)
            if admit(manager, request)[1] is not None:
                running.append(request)
        census, blocks = take_census(manager), manager.block_pool.blocks
        assert census.num_shared == sum(block.ref_cnt > 1 for block in blocks)
        assert census.num_cached == sum(block.block_hash is not None for block in blocks)
        assert census.num_active == sum(block.ref_cnt > 0 for block in blocks)
