"""A minimal request, and shorthands that make a test of the cache read like a timetable."""

from collections.abc import Sequence

from octavo.kv.block import KVCacheBlock
from octavo.kv.block_pool import BlockPool
from octavo.kv.hashing import BlockHash, BlockHasher, ExtraKey, request_root
from octavo.kv.invariants import check_invariants
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import PrefixHit

ROOT: BlockHash = bytes(range(32))


class FakeRequest:
    """Tokens, their block hashes, and a counter; what `CacheRequest` asks for."""

    def __init__(
        self,
        request_id: str,
        token_ids: Sequence[int],
        *,
        block_size: int = 16,
        extra_keys: Sequence[ExtraKey] = (),
        skip_prefix_lookup: bool = False,
    ) -> None:
        self.request_id = request_id
        self.token_ids = list(token_ids)
        self.num_computed_tokens = 0
        self.skip_prefix_lookup = skip_prefix_lookup
        self.block_hashes: list[BlockHash] = []
        self._hasher = BlockHasher(block_size, ROOT)
        self._root = request_root(ROOT, extra_keys)
        self._hasher.extend(self.block_hashes, self.token_ids, self._root)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def append(self, *token_ids: int) -> None:
        self.token_ids.extend(token_ids)
        self._hasher.extend(self.block_hashes, self.token_ids, self._root)


def compute(
    manager: KVCacheManager, request: FakeRequest, num_tokens: int | None = None, *, confirm: bool = True
) -> list[int] | None:
    """Schedule the missing tokens of a running request, or as many as told, as one step."""
    if num_tokens is None:
        num_tokens = request.num_tokens - request.num_computed_tokens
    new_ids = manager.allocate(request, num_tokens)
    if new_ids is not None:
        _run(manager, request, num_tokens, confirm=confirm)
    return new_ids


def admit(
    manager: KVCacheManager, request: FakeRequest, num_tokens: int | None = None, *, confirm: bool = True
) -> tuple[PrefixHit, list[int] | None]:
    """Look a waiting request up, and schedule its missing tokens, or as many as told, as one step."""
    hit = manager.lookup(request)
    if num_tokens is None:
        num_tokens = request.num_tokens - hit.num_tokens
    new_ids = manager.allocate(request, num_tokens, hit=hit)
    if new_ids is not None:
        request.num_computed_tokens = hit.num_tokens
        _run(manager, request, num_tokens, confirm=confirm)
    return hit, new_ids


def _run(manager: KVCacheManager, request: FakeRequest, num_tokens: int, *, confirm: bool) -> None:
    request.num_computed_tokens += num_tokens
    manager.commit(request, request.num_computed_tokens)
    if confirm:
        manager.take_block_copies()
        manager.confirm_step()
    check_invariants(manager, [request])


def ids(blocks: Sequence[KVCacheBlock]) -> list[int]:
    return [block.block_id for block in blocks]


def free_ids(manager_or_pool: KVCacheManager | BlockPool) -> list[int]:
    """The free queue, front first."""
    pool = manager_or_pool.block_pool if isinstance(manager_or_pool, KVCacheManager) else manager_or_pool
    return ids(list(pool.free_block_queue))


def ref_cnts(manager: KVCacheManager) -> list[int]:
    return [block.ref_cnt for block in manager.block_pool.blocks]


def hashed_ids(manager: KVCacheManager) -> list[int]:
    """Findable blocks, in order of their ids."""
    return sorted(ids(list(manager.block_pool.cached_blocks.blocks())))
