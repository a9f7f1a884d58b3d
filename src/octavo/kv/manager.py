"""`KVCacheManager`: which request holds which blocks, and which blocks a new request can take over.

One step of the engine goes through it like this:

    hit = manager.lookup(request)                       # what is cached; changes nothing
    manager.allocate(request, num_new_tokens, hit=hit)  # new block ids, or None: try again later
    manager.commit(request, num_tokens)                 # blocks the step fills can be found from now on
    manager.take_block_copies()                         # to be made before the step computes
    ...                                                 # the step runs
    manager.confirm_step()                              # or rollback_step(), if it failed

A request ends, is preempted or fails through `free`; there is no other way for it to give up blocks.
Check, then act: every method that can be refused is refused before it has changed anything.
"""

from octavo.errors import ConfigError, InvariantError
from octavo.kv.block import BlockCopy
from octavo.kv.block_pool import BlockPool
from octavo.kv.block_table import BlockTable, TableChange
from octavo.kv.in_flight import PrefixesInFlight
from octavo.kv.placement import Placement, Span, place_first, place_next
from octavo.kv.prefix_hit import NO_HIT, PrefixHit
from octavo.kv.receipt import CacheReceipt, MissReason
from octavo.kv.request import CacheRequest
from octavo.kv.step_log import StepLog


class KVCacheManager:
    """Block tables over one pool, with prefix caching.

    Args:
        num_blocks: usable blocks, ids ``0 … num_blocks - 1``; the null block is id ``num_blocks``.
        block_size: tokens per block.
        enable_prefix_caching: if false nothing is hashed, stored or found; forks still share.
        watermark: share of the blocks that an allocation with ``respect_watermark`` leaves free, 0 ≤ … < 1.
        max_model_len: no request gets slots for more tokens than this; ``None`` sets no limit.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = True,
        watermark: float = 0.0,
        max_model_len: int | None = None,
    ) -> None:
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1, got {block_size}")
        if not 0.0 <= watermark < 1.0:
            raise ConfigError(f"watermark must be at least 0 and below 1, got {watermark}")
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_blocks)
        self.req_to_blocks: dict[str, BlockTable] = {}
        self.prefixes_in_flight = PrefixesInFlight()
        self.step_log = StepLog(self.block_pool)
        self._watermark_blocks = int(watermark * num_blocks)

    @property
    def num_blocks(self) -> int:
        """Usable blocks."""
        return self.block_pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks no request holds; cached ones among them."""
        return self.block_pool.num_free_blocks

    @property
    def usage(self) -> float:
        """Share of the usable blocks in use, 0.0 … 1.0."""
        return self.block_pool.usage

    # ── finding ──

    def lookup(self, request: CacheRequest) -> PrefixHit:
        """The longest cached prefix of whole blocks; changes nothing.

        The last known token is never part of it: computing it is what gives the next token's logits.
        """
        if request.skip_prefix_lookup or not self.enable_prefix_caching:
            return NO_HIT
        blocks = self.block_pool.cached_blocks.longest_prefix(
            request.block_hashes[: self._max_hit_blocks(request)]
        )
        return PrefixHit(blocks, len(blocks) * self.block_size) if blocks else NO_HIT

    def is_prefix_in_flight(self, request: CacheRequest, hit: PrefixHit) -> bool:
        """Whether a running request is about to compute the block after ``hit``, so that waiting pays."""
        if request.skip_prefix_lookup or not self.enable_prefix_caching:
            return False
        next_block = len(hit.blocks)
        if next_block >= self._max_hit_blocks(request):
            return False
        return request.block_hashes[next_block] in self.prefixes_in_flight

    def receipt(self, request: CacheRequest, num_found_tokens: int, *, is_salted: bool) -> CacheReceipt:
        """What a request that is being admitted gets from the cache.

        Args:
            request: whose it is.
            num_found_tokens: what it need not compute, by a hit or by a fork.
            is_salted: whether its extra keys hold a salt.
        """
        num_reused, num_copied = num_found_tokens // self.block_size, num_found_tokens % self.block_size > 0
        num_blocks = -(-request.num_tokens // self.block_size)
        return CacheReceipt(
            num_reused,
            int(num_copied),
            num_blocks - num_reused - num_copied,
            num_found_tokens,
            self._miss_reason(request, num_reused, is_salted=is_salted),
        )

    def _miss_reason(self, request: CacheRequest, num_found_blocks: int, *, is_salted: bool) -> MissReason:
        if request.skip_prefix_lookup or not self.enable_prefix_caching:
            return MissReason.NOT_LOOKED_UP
        if num_found_blocks >= self._max_hit_blocks(request):
            return MissReason.LAST_TOKEN
        if request.block_hashes[num_found_blocks] in self.block_pool.eviction_log:
            return MissReason.EVICTED
        return MissReason.SALT if is_salted else MissReason.NEVER_CACHED

    def _max_hit_blocks(self, request: CacheRequest) -> int:
        return (request.num_tokens - 1) // self.block_size

    # ── allocating ──

    def allocate(
        self,
        request: CacheRequest,
        num_new_tokens: int,
        *,
        hit: PrefixHit = NO_HIT,
        num_lookahead_tokens: int = 0,
        respect_watermark: bool = False,
        reserved_blocks: int = 0,
        whole_sequence: bool = False,
    ) -> list[int] | None:
        """Give the request slots for ``num_new_tokens`` tokens after those already computed.

        The slots start after ``hit`` if one is given, else after ``request.num_computed_tokens``. A block
        that is written and held by another request too is replaced by a private copy, see
        `take_block_copies`.

        Args:
            hit: what `lookup` just returned; only for a request that holds no blocks yet.
            num_lookahead_tokens: further slots, whose content stays undefined and is never committed.
            respect_watermark: leave the watermark free as well.
            reserved_blocks: free blocks promised to others, not to be touched.
            whole_sequence: refuse unless all known tokens of the request would fit, not just these.

        Returns:
            The ids taken from the pool, private copies first; ``None`` if there is no room, with nothing
            changed.

        Raises:
            InvariantError: nothing is asked for, a number is negative, or the request's state cannot be.
        """
        table = self.req_to_blocks.get(request.request_id)
        if table is not None and not (hit.blocks or respect_watermark or reserved_blocks or whole_sequence):
            start = request.num_computed_tokens
            if num_new_tokens > 0 <= num_lookahead_tokens and self._fits_in_tail(
                table, start, start + num_new_tokens + num_lookahead_tokens
            ):
                return []  # decoding, nearly always
        span = self._span(request, num_new_tokens, hit, num_lookahead_tokens)
        placement = self._place(request, span, hit)
        watermark_blocks = self._watermark_blocks if respect_watermark else 0
        num_free_blocks = self.num_free_blocks - watermark_blocks
        if placement.num_free_blocks_used > num_free_blocks - reserved_blocks:
            return None
        if whole_sequence and self._num_blocks_for_whole_sequence(request, span, hit) > num_free_blocks:
            return None
        return self._take(request, span, placement, hit)

    def _fits_in_tail(self, table: BlockTable, start: int, end: int) -> bool:
        """Whether the last block has the slots, and nobody else holds it or can find it."""
        num_slots = len(table.blocks) * self.block_size
        if start < num_slots - self.block_size or end > num_slots:
            return False
        tail = table.blocks[-1]
        return tail.ref_cnt == 1 and tail.block_hash is None

    def _span(
        self, request: CacheRequest, num_new_tokens: int, hit: PrefixHit, num_lookahead_tokens: int
    ) -> Span:
        """The positions an allocation is about, once it is known to make sense."""
        if num_new_tokens < 0 or num_lookahead_tokens < 0:
            raise InvariantError(
                f"slots for {num_new_tokens} tokens and {num_lookahead_tokens} look-ahead tokens "
                f"are asked for {request.request_id}; neither may be negative"
            )
        if num_new_tokens == 0 and not hit.blocks:
            raise InvariantError(f"slots for no tokens are asked for {request.request_id}")
        table = self.req_to_blocks.get(request.request_id)
        if table is None:
            self._check_first_allocation(request, hit)
        elif hit.blocks:
            raise InvariantError(f"{request.request_id} holds blocks and cannot take over a prefix hit")
        start = hit.num_tokens if hit.blocks else request.num_computed_tokens
        computed_end = start + num_new_tokens
        end = computed_end + num_lookahead_tokens
        if self.max_model_len is not None:
            end = min(end, self.max_model_len)
        return Span(start, computed_end, end)

    def _check_first_allocation(self, request: CacheRequest, hit: PrefixHit) -> None:
        num_hit_blocks = len(hit.blocks)
        if not num_hit_blocks:
            if request.num_computed_tokens:
                raise InvariantError(
                    f"{request.request_id} has {request.num_computed_tokens} computed tokens, but no blocks"
                )
            return
        hit_hashes = [block.block_hash for block in hit.blocks]
        if hit_hashes != list(request.block_hashes[:num_hit_blocks]):
            raise InvariantError(
                f"the prefix hit of {request.request_id} is stale: look up again after other allocations"
            )

    def _place(self, request: CacheRequest, span: Span, hit: PrefixHit) -> Placement:
        table = self.req_to_blocks.get(request.request_id)
        if table is None:
            return place_first(span, hit, self.block_size)
        return place_next(span, table, self.block_size, self.step_log.pins)

    def _num_blocks_for_whole_sequence(self, request: CacheRequest, span: Span, hit: PrefixHit) -> int:
        num_tokens = max(request.num_tokens, span.computed_end) - span.start
        whole = self._span(request, num_tokens, hit, 0)
        return self._place(request, whole, hit).num_free_blocks_used

    def _take(self, request: CacheRequest, span: Span, placement: Placement, hit: PrefixHit) -> list[int]:
        """Carry out an allocation that is known to fit."""
        table = self.req_to_blocks.get(request.request_id)
        if table is None:
            table = self._admit(request, span, hit)
        num_copies = len(placement.shared_entries)
        blocks = self.block_pool.allocate(num_copies + placement.num_new_blocks)
        for entry, private_block in zip(placement.shared_entries, blocks[:num_copies], strict=True):
            self.step_log.make_private(table, entry, private_block)
        self._unhash_overwritten(table, span)
        table.blocks += blocks[num_copies:]
        return [block.block_id for block in blocks]

    def _admit(self, request: CacheRequest, span: Span, hit: PrefixHit) -> BlockTable:
        """Open the request's table with the blocks of its hit."""
        self.block_pool.acquire(hit.blocks)
        table = BlockTable(hit.blocks, num_committed_blocks=len(hit.blocks))
        self.req_to_blocks[request.request_id] = table
        if self.enable_prefix_caching:
            first_later_block = span.computed_end // self.block_size
            self.prefixes_in_flight.start(request.request_id, request.block_hashes, first_later_block)
        return table

    def _unhash_overwritten(self, table: BlockTable, span: Span) -> None:
        """A block that is written in place must not be found as what it was, whatever becomes of the step."""
        for entry in span.held_entries(table, self.block_size):
            self.block_pool.evict(table.blocks[entry])
            table.num_committed_blocks = min(table.num_committed_blocks, entry)

    # ── committing ──

    def commit(self, request: CacheRequest, num_tokens: int) -> None:
        """Make the blocks findable that the first ``num_tokens`` tokens fill, also within this very step.

        Nothing beyond ``request.num_tokens`` is committed, since look-ahead tokens may be rejected, and
        nothing twice. Commit only what the step is certain to compute; until `confirm_step` it can be undone
        by `rollback_step` and `uncommit`.
        """
        if not self.enable_prefix_caching:
            return
        table = self._table_of(request.request_id)
        start = table.num_committed_blocks
        end = min(num_tokens, request.num_tokens) // self.block_size
        if end <= start:
            return
        if end > min(len(table.blocks), len(request.block_hashes)):
            raise InvariantError(
                f"{end} blocks of {request.request_id} are to be committed, but it holds {len(table.blocks)} "
                f"and has hashes of {len(request.block_hashes)}"
            )
        committed = self.block_pool.commit(table.blocks[start:end], request.block_hashes[start:end])
        table.num_committed_blocks = end
        self.step_log.record_commit(table, start, committed)
        self.prefixes_in_flight.advance(request.request_id, end)

    def confirm_step(self) -> None:
        """The step ran: what was committed stands, and what was copied is no longer held for the copy."""
        self.step_log.confirm()

    def rollback_step(self) -> None:
        """The step failed or was cancelled: nothing committed since the last confirmation is findable.

        No copy counts as made. What requests hold from this step is undefined: every request that
        allocated in it, or was forked in it, must be freed.
        """
        self.step_log.rollback()

    def uncommit(self, request: CacheRequest) -> None:
        """As `rollback_step`, for one request that failed alone or is taken out of the step again."""
        self.step_log.uncommit(self._table_of(request.request_id))

    def take_block_copies(self) -> list[BlockCopy]:
        """Copies ordered since the last call, to be made in this order before the step computes.

        Both ends of a copy stay referenced until the step is confirmed or rolled back.
        """
        return self.step_log.take_copies()

    # ── sharing and ending ──

    def fork(self, parent: CacheRequest, child: CacheRequest, num_tokens: int) -> None:
        """Let ``child`` hold the parent's blocks of the first ``num_tokens`` tokens, a partial tail included.

        The tokens must be the same in both and must have been computed in a step that is confirmed, because
        copies are made before the next step computes. Writing into a shared block copies it first, see
        `allocate`.
        """
        table = self._table_of(parent.request_id)
        if child.request_id in self.req_to_blocks:
            raise InvariantError(f"{child.request_id} holds blocks already and cannot be forked into")
        if not 0 <= num_tokens <= parent.num_computed_tokens:
            raise InvariantError(
                f"{child.request_id} is forked from {num_tokens} tokens of {parent.request_id}, "
                f"of which {parent.num_computed_tokens} are computed"
            )
        shared = table.blocks[: -(-num_tokens // self.block_size)]
        self.block_pool.acquire(shared)
        num_committed = min(table.num_committed_blocks, num_tokens // self.block_size)
        self.req_to_blocks[child.request_id] = BlockTable(shared, num_committed_blocks=num_committed)

    def free(self, request: CacheRequest) -> None:
        """Give up all blocks of a request that finished, was aborted, preempted or failed.

        What is findable stays so until its block is used again. No-op for a request without blocks.
        """
        table = self.req_to_blocks.get(request.request_id)
        if table is None:
            return
        self.block_pool.release(table.blocks)
        del self.req_to_blocks[request.request_id]
        self.prefixes_in_flight.stop(request.request_id)

    def reset_prefix_cache(self) -> bool:
        """Forget all content, for example because the weights changed; false, and no change, while in use."""
        if not self.block_pool.reset():
            return False
        self.step_log.forget_commits()
        return True

    # ── reading tables ──

    def block_ids(self, request_id: str) -> list[int]:
        """The request's block table as physical ids."""
        return self._table_of(request_id).block_ids

    def changed_from(self, request_id: str) -> int:
        """Index of the first table entry that `take_table_changes` has not returned yet."""
        return self._table_of(request_id).changed_from

    def take_table_changes(self, request_id: str) -> TableChange:
        """The table from its first changed entry on: appended blocks and private copies alike."""
        return self._table_of(request_id).take_change()

    def _table_of(self, request_id: str) -> BlockTable:
        table = self.req_to_blocks.get(request_id)
        if table is None:
            raise InvariantError(f"{request_id} holds no blocks")
        return table
