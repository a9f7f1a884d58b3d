"""`Admission`: which waiting requests begin to run in a step."""

from collections.abc import Mapping

from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import NO_HIT, PrefixHit
from octavo.sched.fair_queue import FairQueue
from octavo.sched.request import Request, RequestStatus
from octavo.sched.stats import SchedulerStats
from octavo.sched.step_plan import StepPlan


class Admission:
    """Takes requests from the queue to the running ones.

    Args:
        requests: all requests of the scheduler by id; only read.
        waiting: the queue.
        running: the running requests by id, in order of admission; those admitted are added.
        kv: the cache.
        stats: counts lookups.
        max_num_seqs: most requests running at once.
    """

    def __init__(
        self,
        requests: Mapping[str, Request],
        waiting: FairQueue,
        running: dict[str, Request],
        *,
        kv: KVCacheManager,
        stats: SchedulerStats,
        max_num_seqs: int,
    ) -> None:
        self._requests = requests
        self._waiting = waiting
        self._running = running
        self._kv = kv
        self._stats = stats
        self._max_num_seqs = max_num_seqs

    def admit(self, step: StepPlan) -> None:
        """Admit requests from the front of the queue while the step and the cache have room for them."""
        max_num_seqs = max_skipped = self._max_num_seqs  # bounds the cost of a step, however many wait
        if step.only is not None:  # they may be anywhere in the queue
            max_num_seqs, max_skipped = min(max_num_seqs, len(step.only)), len(self._waiting)
        skipped: list[Request] = []
        while self._waiting and step.token_budget > 0 and len(self._running) < max_num_seqs:
            request = self._waiting.peek()
            hit = self._kv.lookup(request) if step.may_hold(request) else None
            if hit is not None and self._is_ready(request, hit):
                if not self._admit(request, hit, step):
                    break
            elif len(skipped) < max_skipped:
                skipped.append(self._waiting.skip())
            else:
                break
        self._waiting.put_back(skipped)

    def _is_ready(self, request: Request, hit: PrefixHit) -> bool:
        """Whether nobody is computing what the request needs next.

        It never waits for something that makes no progress: whoever computes a prefix is running, and
        when nobody is, the front request is ready whatever it would rather wait for.
        """
        if not self._running:
            return True
        first = self._first_sibling(request)
        if first is not None:
            return first.num_output_tokens > 0
        return not self._kv.is_prefix_in_flight(request, hit)

    def _first_sibling(self, request: Request) -> Request | None:
        """The first of the siblings, if it can be forked, now or when it has computed the prompt."""
        first = request.first_sibling
        if first is None or first.is_finished or first.num_preemptions:
            return None
        return first if self._requests.get(first.request_id) is first else None  # it may not be here

    def _admit(self, request: Request, hit: PrefixHit, step: StepPlan) -> bool:
        """Move the front request to the running ones, if there is room for all the tokens it has."""
        hit = self._fork_instead(request, hit)
        num_forked_tokens = request.num_computed_tokens
        num_found_tokens = num_forked_tokens + hit.num_tokens
        num_new_tokens = step.chunk(request.num_tokens - num_found_tokens)
        if num_new_tokens == 0 or not self._allocate_politely(request, num_new_tokens, hit, step):
            self._kv.free(request)
            request.num_computed_tokens = 0
            return False
        self._record_admission(request, num_forked_tokens=num_forked_tokens, num_hit_tokens=hit.num_tokens)
        self._running[request.request_id] = self._waiting.pop()
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_found_tokens
        table_change = self._kv.take_table_changes(request.request_id)
        step.grant(request, num_new_tokens, table_change, is_new=True)
        self._kv.commit(request, request.num_computed_tokens)  # the next one admitted may find it already
        return True

    def _fork_instead(self, request: Request, hit: PrefixHit) -> PrefixHit:
        """Share the blocks of the first sibling if that gives more than ``hit``; returns the hit to use."""
        first = self._first_sibling(request)
        num_shared_tokens = request.num_prompt_tokens - 1  # the last one is computed again, for its logits
        if first is None or first.num_output_tokens == 0 or num_shared_tokens <= hit.num_tokens:
            return hit
        self._kv.fork(first, request, num_shared_tokens)
        request.num_computed_tokens = num_shared_tokens
        return NO_HIT

    def _allocate_politely(
        self, request: Request, num_new_tokens: int, hit: PrefixHit, step: StepPlan
    ) -> bool:
        """Allocate, if all known tokens fit beside what the requests ahead of it still need for theirs."""
        end = request.num_computed_tokens + hit.num_tokens + num_new_tokens
        new_block_ids = self._kv.allocate(
            request,
            num_new_tokens,
            hit=hit,
            respect_watermark=bool(self._running),
            reserved_blocks=step.reserved_blocks + step.num_later_blocks(request, end),
        )
        return new_block_ids is not None

    def _record_admission(self, request: Request, *, num_forked_tokens: int, num_hit_tokens: int) -> None:
        is_resumed = request.num_preemptions > 0
        if not is_resumed:
            request.num_cached_tokens = num_forked_tokens + num_hit_tokens
            request.cache_receipt = self._kv.receipt(
                request, request.num_cached_tokens, is_salted=request.is_salted
            )
        was_looked_up = self._kv.enable_prefix_caching and not request.skip_prefix_lookup
        if was_looked_up and not num_forked_tokens:
            self._stats.record_lookup(request.num_tokens, num_hit_tokens, is_resumed=is_resumed)
