"""`EvictionLog`: remembers what was findable, the latest ones."""

from octavo.kv.block import KVCacheBlock
from octavo.kv.eviction_log import EvictionLog


def block(block_hash):
    made = KVCacheBlock(0)
    made.block_hash = block_hash
    return made


def test_blocks_without_content_are_not_remembered():
    log = EvictionLog()
    log.record([block(None), block(b"a")])
    assert (b"a" in log, len(log)) == (True, 1)
    log.clear()
    assert b"a" not in log


def test_the_oldest_leaves_first_and_a_content_evicted_again_is_new():
    log = EvictionLog(capacity=2)
    for content in (b"a", b"b", b"a", b"c"):
        log.record([block(content)])
    assert [content in log for content in (b"a", b"b", b"c")] == [True, False, True]
