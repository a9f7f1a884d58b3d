"""`check_invariants`: everything that must hold of the cache between any two operations.

    references    a block's count is the number of tables that hold it, plus pins of copies; never negative;
                  blocks with more than one are counted as shared
    free queue    exactly the blocks nobody holds, each once, the same in both directions
    hash map      exactly the hashed blocks, each under its own hash
    tables        no block twice, and no block that is hashed as another prefix than its request's
    null block    in no queue, never counted, never hashed
    in flight     only requests that hold blocks compute anything

Costs time in the size of the pool: for tests and for hunting a bug, not for every step in production.
"""

from collections import Counter
from collections.abc import Iterable

from octavo.errors import InvariantError
from octavo.kv.block import KVCacheBlock
from octavo.kv.block_pool import BlockPool
from octavo.kv.manager import KVCacheManager
from octavo.kv.request import CacheRequest


def check_invariants(manager: KVCacheManager, requests: Iterable[CacheRequest] = ()) -> None:
    """Raise `InvariantError` with every broken invariant and a dump of the state, if there is any.

    Args:
        manager: checked between two operations, not inside one.
        requests: those whose tables are compared with their block hashes as well.
    """
    broken = [
        *_broken_references(manager),
        *_broken_queue(manager.block_pool),
        *_broken_hash_map(manager.block_pool),
        *_broken_tables(manager, requests),
        *_broken_null_block(manager),
    ]
    if broken:
        raise InvariantError("\n".join([*broken, dump(manager)]))


def dump(manager: KVCacheManager) -> str:
    """The state of the cache as text: tables, blocks in use, free queue, findable blocks."""
    pool = manager.block_pool
    tables = (f"  {request_id}: {table.block_ids}" for request_id, table in manager.req_to_blocks.items())
    held = (f"{block.block_id}×{block.ref_cnt}" for block in pool.blocks if block.ref_cnt)
    free = (str(block.block_id) for block in _forwards(pool))
    findable = (f"{_short(block)}→{block.block_id}" for block in pool.cached_blocks.blocks())
    return "\n".join(
        [
            f"block tables ({len(manager.req_to_blocks)}):",
            *tables,
            f"block×references: {' '.join(held)}",
            f"pins: {dict(manager.step_log.pins)}",
            f"free queue ({pool.num_free_blocks}): {' '.join(free)}",
            f"hash map: {' '.join(findable)}",
        ]
    )


def _broken_references(manager: KVCacheManager) -> list[str]:
    expected = Counter(manager.step_log.pins)
    for table in manager.req_to_blocks.values():
        expected.update(table.block_ids)
    pool = manager.block_pool
    broken = [
        f"block {block.block_id} has {block.ref_cnt} references, but {expected[block.block_id]} holders"
        for block in pool.blocks
        if block.ref_cnt != expected[block.block_id]
    ]
    num_shared = sum(block.ref_cnt > 1 for block in pool.blocks)
    if num_shared != pool.num_shared_blocks:
        broken.append(f"{num_shared} blocks are shared, but {pool.num_shared_blocks} are counted as shared")
    return broken


def _broken_queue(pool: BlockPool) -> list[str]:
    forwards = [block.block_id for block in _forwards(pool)]
    backwards = [block.block_id for block in _backwards(pool)]
    unheld = {block.block_id for block in pool.blocks if block.ref_cnt == 0}
    broken = []
    if forwards != backwards[::-1]:
        broken.append(f"the free queue is {forwards} forwards, but {backwards} backwards")
    if len(forwards) != pool.num_free_blocks:
        broken.append(f"the free queue counts {pool.num_free_blocks} blocks, but has {len(forwards)}")
    if len(set(forwards)) != len(forwards) or set(forwards) != unheld:
        broken.append(f"the free queue is {forwards}, but the blocks nobody holds are {sorted(unheld)}")
    return broken


def _broken_hash_map(pool: BlockPool) -> list[str]:
    findable = list(pool.cached_blocks.blocks())
    broken = [
        f"block {block.block_id} is in the hash map, but not under its hash {_short(block)}"
        for block in findable
        if block.block_hash is None or block not in pool.cached_blocks.blocks_of(block.block_hash)
    ]
    hashed_ids = [block.block_id for block in pool.blocks if block.block_hash is not None]
    findable_ids = sorted(block.block_id for block in findable)
    if hashed_ids != findable_ids:
        broken.append(f"blocks {hashed_ids} are hashed, but {findable_ids} are in the hash map")
    return broken


def _broken_tables(manager: KVCacheManager, requests: Iterable[CacheRequest]) -> list[str]:
    broken = []
    for request_id, table in manager.req_to_blocks.items():
        if len(set(table.block_ids)) != len(table.blocks):
            broken.append(f"the table of {request_id} has a block twice: {table.block_ids}")
        if max(table.num_committed_blocks, table.changed_from) > len(table.blocks):
            broken.append(f"the table of {request_id} is shorter than what was committed or read of it")
    strangers = manager.prefixes_in_flight.request_ids() - set(manager.req_to_blocks)
    if strangers:
        broken.append(f"prefixes of {sorted(strangers)} are in flight, but these hold no blocks")
    for request in requests:
        broken += _foreign_blocks(manager, request)
    return broken


def _foreign_blocks(manager: KVCacheManager, request: CacheRequest) -> list[str]:
    """Blocks in the request's table that are findable as a prefix the request does not have.

    Behind the committed ones there may be one: a fork shares a tail that is full only for its parent.
    """
    table = manager.req_to_blocks.get(request.request_id)
    blocks = table.blocks[: table.num_committed_blocks] if table is not None else []
    return [
        f"entry {entry} of {request.request_id} is block {block.block_id}, hashed as another prefix"
        for entry, block in enumerate(blocks)
        if block.block_hash is not None and block.block_hash not in request.block_hashes[entry : entry + 1]
    ]


def _broken_null_block(manager: KVCacheManager) -> list[str]:
    null_block = manager.block_pool.null_block
    is_linked = null_block.prev_free_block is not None or null_block.next_free_block is not None
    if null_block.ref_cnt or null_block.block_hash is not None or is_linked:
        return [f"the null block, {null_block.block_id}, is counted, hashed or queued"]
    return []


def _forwards(pool: BlockPool) -> list[KVCacheBlock]:
    """The free queue from the front, cut off where it would loop."""
    queue, blocks = pool.free_block_queue, list[KVCacheBlock]()
    block = queue.head.next_free_block
    while block is not None and block is not queue.tail and len(blocks) <= len(pool.blocks):
        blocks.append(block)
        block = block.next_free_block
    return blocks


def _backwards(pool: BlockPool) -> list[KVCacheBlock]:
    """The free queue from the tail, cut off where it would loop."""
    queue, blocks = pool.free_block_queue, list[KVCacheBlock]()
    block = queue.tail.prev_free_block
    while block is not None and block is not queue.head and len(blocks) <= len(pool.blocks):
        blocks.append(block)
        block = block.prev_free_block
    return blocks


def _short(block: KVCacheBlock) -> str:
    return "-" if block.block_hash is None else block.block_hash.hex()[:8]
