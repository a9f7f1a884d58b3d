"""`CacheModel`: a cache manager driven together with a memory that remembers what is in every slot.

The K/V of a position depends on all tokens up to it, so a slot's content is modelled as the tuple of
those tokens, with the salt in front. That makes the promise of prefix caching checkable: whatever a
request reads through its block table, and whatever can be found by hash, is exactly the prefix it
stands for. A step is modelled as the engine runs it: copies first, then all writes, then all reads.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kv_harness import FakeRequest

from octavo.kv.hashing import ExtraKey, ExtraKeyKind
from octavo.kv.invariants import check_invariants
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import NO_HIT

GARBAGE = "garbage"


class ModelRequest(FakeRequest):
    def __init__(self, request_id, token_ids, *, block_size, salt="", skip_prefix_lookup=False):
        keys = [ExtraKey(ExtraKeyKind.CACHE_SALT, salt)] if salt else []
        super().__init__(
            request_id,
            token_ids,
            block_size=block_size,
            extra_keys=keys,
            skip_prefix_lookup=skip_prefix_lookup,
        )
        self.salt = salt
        self.is_running = False
        self.hashes_to_compute: list[bytes] = []

    def content(self, position):
        """What the slot of this position holds once it is computed."""
        return (self.salt, *self.token_ids[: position + 1])


class Span(NamedTuple):
    """Positions of a request that the step under way computes."""

    request: ModelRequest
    start: int
    end: int


class CacheModel:
    def __init__(self, *, num_blocks: int, block_size: int, enable_prefix_caching: bool = True) -> None:
        self.manager = KVCacheManager(
            num_blocks=num_blocks,
            block_size=block_size,
            enable_prefix_caching=enable_prefix_caching,
            watermark=0.2,
        )
        self.block_size = block_size
        self.memory = [[None] * block_size for _ in range(num_blocks)]
        self.content_of_hash: dict[bytes, list[tuple]] = {}
        self.requests: list[ModelRequest] = []
        self.step: list[Span] = []
        self.num_requests = 0
        self.num_hit_tokens = 0
        self.num_copies = 0

    # ── what can happen ──

    def add(self, token_ids: Sequence[int], *, salt: str = "", skip_prefix_lookup: bool = False) -> None:
        self._new_request(token_ids, salt=salt, skip_prefix_lookup=skip_prefix_lookup)

    def schedule(self, request: ModelRequest, num_tokens: int, **options) -> None:
        """Compute up to ``num_tokens`` more tokens of the request in the step under way, if they fit."""
        if request in [span.request for span in self.step]:
            return
        hit = self.manager.lookup(request)
        assert hit.num_tokens < request.num_tokens
        is_first = not request.is_running
        start = hit.num_tokens if is_first else request.num_computed_tokens
        num_tokens = min(num_tokens, request.num_tokens - start)
        if num_tokens == 0:
            return
        if is_first:
            self._check_in_flight(request, hit)
            options["hit"] = hit
        if self._allocate(request, num_tokens, options) is None:
            return
        if is_first:
            request.is_running = True
            request.hashes_to_compute = request.block_hashes[(start + num_tokens) // self.block_size :]
            self.num_hit_tokens += hit.num_tokens
        self.step.append(Span(request, start, start + num_tokens))
        request.num_computed_tokens = start + num_tokens
        self.manager.commit(request, request.num_computed_tokens)

    def withdraw(self) -> None:
        """Take the request that was scheduled last out of the step again, and preempt it."""
        if self.step:
            request = self.step.pop().request
            self.manager.uncommit(request)
            self._preempt(request)

    def run_step(self) -> None:
        """The step under way runs: copies, then all writes, then all reads."""
        for src, dst in self.manager.take_block_copies():
            self.memory[dst] = list(self.memory[src])
            self.num_copies += 1
        for span in self.step:
            for position in range(span.start, span.end):
                self._write(span.request, position, span.request.content(position))
        for span in self.step:
            self._check_reads(span.request)
        self.manager.confirm_step()
        self.step.clear()

    def fail_step(self, *, copies_were_made: bool) -> None:
        """The step fails after having written anything anywhere it may write."""
        if copies_were_made:
            for _, dst in self.manager.take_block_copies():
                self.memory[dst] = [GARBAGE] * self.block_size
        for span in self.step:
            for position in range(span.start, span.end):
                self._write(span.request, position, GARBAGE)
        self.manager.rollback_step()
        for span in self.step:
            self._preempt(span.request)
        self.step.clear()

    def append(self, request: ModelRequest, token_id: int) -> None:
        """A token was sampled; only for a request whose tokens are all computed."""
        if request in [span.request for span in self.step]:
            return
        if request.is_running and request.num_computed_tokens == request.num_tokens:
            request.append(token_id)
            self._learn_hashes(request)

    def decode(self, token_id: int) -> None:
        """Every running request goes on, with one more token if it has computed all it has."""
        for request in [request for request in self.requests if request.is_running]:
            self.append(request, token_id)
            self.schedule(request, 4)

    def fork(
        self, parent: ModelRequest, num_tokens: int, continuation: Sequence[int], *, num_again: int = 0
    ) -> None:
        """Another request shares the parent's first ``num_tokens`` tokens and goes on in its own way.

        It computes the last ``num_again`` of the shared tokens again.
        """
        num_tokens = min(num_tokens, parent.num_computed_tokens)
        if not parent.is_running or parent in [span.request for span in self.step]:
            return
        child = self._new_request([*parent.token_ids[:num_tokens], *continuation], salt=parent.salt)
        self.manager.fork(parent, child, num_tokens)
        child.is_running = True
        child.num_computed_tokens = max(num_tokens - num_again, 0)

    def preempt(self, request: ModelRequest) -> None:
        if request not in [span.request for span in self.step]:
            self._preempt(request)

    def finish(self, request: ModelRequest) -> None:
        if request not in [span.request for span in self.step]:
            self._preempt(request)
            self.requests.remove(request)

    def reset(self) -> None:
        pool = self.manager.block_pool
        is_idle = pool.num_free_blocks == pool.num_blocks
        assert self.manager.reset_prefix_cache() == is_idle
        assert not (is_idle and len(pool.cached_blocks))

    # ── what must hold ──

    def check(self) -> None:
        check_invariants(self.manager, self.requests)
        being_written = {(block_id, offset) for span in self.step for block_id, offset in self._slots(span)}
        being_copied = self.manager.step_log.pins
        for block in self.manager.block_pool.cached_blocks.blocks():
            if block.block_id in being_copied:
                continue
            expected = self.content_of_hash[block.block_hash]
            for offset, content in enumerate(expected):
                if (block.block_id, offset) not in being_written:
                    assert self.memory[block.block_id][offset] == content
        for request in self.requests:
            num_blocks = (
                len(self.manager.req_to_blocks[request.request_id].blocks) if request.is_running else 0
            )
            assert num_blocks * self.block_size >= request.num_computed_tokens

    def check_everything_is_given_back(self) -> None:
        """After the last request has ended nothing is held."""
        self.run_step()
        for request in list(self.requests):
            self.finish(request)
        self.check()
        assert self.manager.num_free_blocks == self.manager.num_blocks
        assert self.manager.usage == 0.0
        assert len(self.manager.prefixes_in_flight) == 0

    def _check_reads(self, request: ModelRequest) -> None:
        table = self.manager.block_ids(request.request_id)
        for position in range(request.num_computed_tokens):
            slot = self.memory[table[position // self.block_size]][position % self.block_size]
            assert slot == request.content(position), f"{request.request_id} reads {slot} at {position}"

    def _check_in_flight(self, request: ModelRequest, hit) -> None:
        next_block = len(hit.blocks)
        wanted = request.block_hashes[next_block : (request.num_tokens - 1) // self.block_size][:1]
        computing = {
            block_hash
            for other in self.requests
            if other.is_running
            for block_hash in self._hashes_left(other)
        }
        expected = not request.skip_prefix_lookup and bool(computing & set(wanted))
        assert self.manager.is_prefix_in_flight(request, hit) == expected

    def _hashes_left(self, request: ModelRequest) -> list[bytes]:
        if not self.manager.enable_prefix_caching:
            return []
        committed = set(request.block_hashes[: request.num_computed_tokens // self.block_size])
        return [block_hash for block_hash in request.hashes_to_compute if block_hash not in committed]

    # ── the rest ──

    def _new_request(self, token_ids, *, salt="", skip_prefix_lookup=False) -> ModelRequest:
        self.num_requests += 1
        request = ModelRequest(
            f"r{self.num_requests}",
            token_ids,
            block_size=self.block_size,
            salt=salt,
            skip_prefix_lookup=skip_prefix_lookup,
        )
        self._learn_hashes(request)
        self.requests.append(request)
        return request

    def _learn_hashes(self, request: ModelRequest) -> None:
        for index, block_hash in enumerate(request.block_hashes):
            positions = range(index * self.block_size, (index + 1) * self.block_size)
            content = [request.content(position) for position in positions]
            assert self.content_of_hash.setdefault(block_hash, content) == content

    def _allocate(self, request: ModelRequest, num_tokens: int, options: dict) -> list[int] | None:
        """Allocate, checking the promises about what is taken and that a refusal changes nothing."""
        num_revived = sum(block.ref_cnt == 0 for block in options.get("hit", NO_HIT).blocks)
        free_before = self.manager.num_free_blocks
        before = self._snapshot()
        new_ids = self.manager.allocate(request, num_tokens, **options)
        if new_ids is None:
            assert self._snapshot() == before
            return None
        assert free_before - self.manager.num_free_blocks == num_revived + len(new_ids)
        assert len(set(new_ids)) == len(new_ids)
        assert set(new_ids) <= set(self.manager.block_ids(request.request_id))
        return new_ids

    def _snapshot(self):
        manager = self.manager
        return (
            [(block.ref_cnt, block.block_hash) for block in manager.block_pool.blocks],
            [block.block_id for block in manager.block_pool.free_block_queue],
            {request_id: table.block_ids for request_id, table in manager.req_to_blocks.items()},
            dict(manager.step_log.pins),
        )

    def _preempt(self, request: ModelRequest) -> None:
        self.manager.free(request)
        request.is_running = False
        request.num_computed_tokens = 0

    def _slots(self, span: Span) -> list[tuple[int, int]]:
        table = self.manager.block_ids(span.request.request_id)
        return [
            (table[position // self.block_size], position % self.block_size)
            for position in range(span.start, span.end)
        ]

    def _write(self, request: ModelRequest, position: int, content) -> None:
        block_id = self.manager.block_ids(request.request_id)[position // self.block_size]
        self.memory[block_id][position % self.block_size] = content
