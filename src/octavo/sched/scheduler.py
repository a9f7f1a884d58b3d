"""`Scheduler`: decides, step by step, which tokens of which requests are computed.

One step is `schedule`, then the runner, then `update`, or `rollback` if the runner failed. Between
the two the step is *under way*: its blocks are being written, so nothing that it uses is released.
"""

from collections.abc import Collection, Sequence

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError, InvalidRequestError, InvariantError
from octavo.kv.manager import KVCacheManager
from octavo.sched.admission import Admission
from octavo.sched.arrivals import Arrivals, Refusal
from octavo.sched.limits import SequenceLimit, check_queue, check_queue_tokens
from octavo.sched.output import RequestResult, RunnerOutput, SchedulerOutput
from octavo.sched.pause import PauseMode
from octavo.sched.policy import make_policy
from octavo.sched.request import FinishReason, Request, RequestStatus
from octavo.sched.stats import SchedulerStats
from octavo.sched.step_plan import StepPlan, chunk_limit
from octavo.sched.update import RequestUpdate, apply_result

_NO_RESULT = RequestResult()


class Scheduler:
    """Continuous batching over a paged KV cache.

    A step first serves the running requests in order of admission, then admits waiting ones, within
    a budget of tokens and a cap of requests. When blocks run out, a running request gives all of its
    blocks back and waits to be computed anew (preemption). A request waits while it is not ready:
    while another one is computing the very prefix that it needs next, or its grammar is being compiled.

    Args:
        config: budget, cap, chunking and policy.
        kv: the cache whose blocks are handed out; no one else may use it.
        max_model_len: longest sequence, prompt and output together [tokens].

    Attributes:
        kv, running, waiting: to look at; only the scheduler changes them.

    Raises:
        ConfigError: without chunked prefill, a step must have room for the longest sequence.
    """

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, *, max_model_len: int) -> None:
        if not config.enable_chunked_prefill and config.max_num_batched_tokens < max_model_len:
            raise ConfigError(
                f"without chunked prefill a step must hold the longest sequence: max_num_batched_tokens is "
                f"{config.max_num_batched_tokens}, max_model_len {max_model_len}; raise the first, lower the "
                f"second or set enable_chunked_prefill"
            )
        self._config = config
        self.kv = kv
        self.limit = SequenceLimit(max_model_len, num_blocks=kv.num_blocks, block_size=kv.block_size)
        self._policy = make_policy(config.scheduling_policy)
        self._requests: dict[str, Request] = {}
        self.waiting = self._policy.make_queue()
        self._arrivals = Arrivals(self.waiting, timeout_s=config.queue_timeout)
        self.running: dict[str, Request] = {}
        self._released_ids: list[str] = []
        self._under_way: StepPlan | None = None
        self.pause_mode: PauseMode | None = None  # who is held back, until it is None again
        self._num_steps = 0
        self._num_arrivals = 0
        self.stats = SchedulerStats()
        self._admission = Admission(
            self._requests,
            self.waiting,
            self.running,
            kv=kv,
            stats=self.stats,
            max_num_seqs=config.max_num_seqs,
        )

    # ---- requests come and go ----------------------------------------------------------------

    def add(self, *requests: Request) -> None:
        """Let new requests wait: all of them, or none if one is refused.

        Raises:
            InvalidRequestError: an id is in use, a prompt is empty, or they are more than may ever wait.
            ContextLengthError: a prompt leaves no room for one token of output.
            QueueFullError: too many requests are waiting, or too many of the same tenant.
        """
        new_ids: set[str] = set()
        for request in requests:
            if request.request_id in self._requests or request.request_id in new_ids:
                raise InvalidRequestError(
                    f"request id {request.request_id!r} is in use; choose another", param="request_id"
                )
            self.limit.check(request)
            new_ids.add(request.request_id)
        self._check_room(requests)
        for request in requests:
            self._num_arrivals += 1
            request.arrival_index = self._num_arrivals
            self._requests[request.request_id] = request
            self._arrivals.add(request)

    def _check_room(self, requests: Sequence[Request]) -> None:
        """Refuse requests of one tenant that come together, if the queue has no room for them."""
        config, arrivals = self._config, self._arrivals
        own = arrivals.waiting_of(requests[0].tenant)
        check_queue(self.num_waiting, len(requests), config.max_waiting_requests, num_own=own.num_requests)
        num_tokens = sum(request.num_prompt_tokens for request in requests)
        check_queue_tokens(
            arrivals.num_waiting_tokens, num_tokens, config.max_waiting_tokens, num_own=own.num_tokens
        )

    def take_refused(self, now: float) -> list[Refusal]:
        """Let requests into the queue that were held back for something that is ready now.

        Returns:
            Those that must be ended, see `finish`, because they cannot get what they need or waited too long.
        """
        return self._arrivals.take_refused(now)

    @property
    def next_deadline(self) -> float:
        """When the next request has waited too long, on the clock of arrival times [s]."""
        return self._arrivals.next_deadline

    def finish(self, request_id: str, reason: FinishReason, *, stop_reason: int | str | None = None) -> bool:
        """End a request from outside, in whatever state it is: an abort, or a stop string was found.

        Its blocks are released now, or when the step under way is over if that step computes it.
        No `RequestUpdate` follows.

        Returns:
            Whether this call ended it; ``False`` if it is unknown or ended before.
        """
        request = self._requests.get(request_id)
        if request is None or request.is_finished:
            return False
        request.finish(reason, stop_reason)
        if self._under_way is None or request_id not in self._under_way.scheduled:
            self._forget(request)
        return True

    def preempt_all(self) -> None:
        """Send every running request back to the front of the queue, in order.

        Raises:
            InvariantError: a step is under way.
        """
        self._check_no_step_under_way("preempt_all")
        self._preempt_all_but(())

    def reset_prefix_cache(self, *, reset_running: bool = False) -> bool:
        """Forget all cached prefixes, which must be done when the weights change.

        Args:
            reset_running: preempt running requests first; their output does not change.

        Returns:
            Whether it was done; ``False``, with nothing changed, if blocks are in use.
        """
        if reset_running and self._under_way is None:
            self.preempt_all()
        return self.kv.reset_prefix_cache()

    @property
    def num_waiting(self) -> int:
        """Requests that wait for admission, preempted ones included."""
        return len(self.waiting) + self.num_held_back

    @property
    def num_held_back(self) -> int:
        """Those of the waiting requests that need something which is still being made."""
        return len(self._arrivals)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self.running)

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether any request is waiting or running, or awaits the end of the step under way."""
        return bool(self._requests)

    @property
    def has_work(self) -> bool:
        """Whether there are requests that neither a pause nor something they need holds back."""
        if self._arrivals.has_news:
            return True
        if self.pause_mode is None:
            return len(self._requests) > len(self._arrivals)
        return self.pause_mode is PauseMode.NEW and bool(self.running)

    def __contains__(self, request_id: str) -> bool:
        """Whether a request has not ended, or awaits the end of the step under way."""
        return request_id in self._requests

    # ---- a step ------------------------------------------------------------------------------

    def schedule(self, only: Collection[str] | None = None) -> SchedulerOutput:
        """Decide the next step.

        An output without requests (nothing to do, or paused) is not a step: run, update and roll
        back nothing.

        Args:
            only: ids of the requests that may be in it; others who run give their blocks back and wait.

        Raises:
            InvariantError: the step before is still under way.
        """
        self._check_no_step_under_way("schedule")
        if only is not None:
            self._preempt_all_but(only)
        step = self._begin_step(only)
        self._schedule_running(step)
        if step.admits:
            self._admission.admit(step)
        return self._start(step)

    def update(self, output: SchedulerOutput, runner_output: RunnerOutput) -> list[RequestUpdate]:
        """Take in what the step computed: tokens, ends and failures, in the order of its rows.

        Raises:
            InvariantError: ``output`` is not the step under way.
        """
        self._end_step(output)
        results = runner_output.results
        limit = self.limit.max_num_tokens
        updates: list[RequestUpdate] = []
        ended: list[Request] = []
        failed: list[Request] = []
        for scheduled in output.scheduled:
            request = self._requests[scheduled.request_id]
            result = results.get(scheduled.request_id, _NO_RESULT)
            if request.finish_reason is None:
                update = apply_result(request, result, samples=scheduled.samples, limit=limit)
                if update is not None:
                    updates.append(update)
            if request.finish_reason is not None:
                ended.append(request)
                if request.finish_reason is FinishReason.ERROR or result.error is not None:
                    failed.append(request)
        if failed:
            self._disown(failed, output)
        self.kv.confirm_step()
        for request in ended:
            self._forget(request)
        return updates

    def rollback(self, output: SchedulerOutput) -> None:
        """The step failed or was cancelled: nothing it wrote may be found, its requests start over.

        They keep the tokens they had and go back to the front of the queue, in order.

        Raises:
            InvariantError: ``output`` is not the step under way.
        """
        self._end_step(output)
        self.kv.rollback_step()
        # Whether the runner dropped the rows that the failed step named is unknown, so they are named again.
        self._released_ids[:0] = output.released_request_ids
        for scheduled in reversed(output.scheduled):
            request = self._requests[scheduled.request_id]
            if request.is_finished:
                self._forget(request)
            else:
                self._preempt(request)
        self._released_ids = list(dict.fromkeys(self._released_ids))

    # ---- running requests ----------------------------------------------------------------------

    def _schedule_running(self, step: StepPlan) -> None:
        kv, running = self.kv, RequestStatus.RUNNING
        for request in list(self.running.values()):
            if step.token_budget == 0:
                break
            if request.status is not running:  # preempted for one before it
                continue
            num_new_tokens = step.chunk(request.num_tokens - request.num_computed_tokens)
            if kv.allocate(request, num_new_tokens) is None and not self._make_room(
                request, num_new_tokens, step
            ):
                continue
            step.grant(request, num_new_tokens, kv.take_table_changes(request.request_id))
        # Only now, when nobody can be preempted any more, may others find what this step fills.
        for request in step.filling.values():
            kv.commit(request, request.num_computed_tokens)

    def _make_room(self, request: Request, num_new_tokens: int, step: StepPlan) -> bool:
        """Preempt others until its blocks can be allocated; false if the request itself had to give way."""
        while True:
            victim = self._policy.victim(self.running)
            step.take_back(victim.request_id)
            step.admits = False
            self._preempt(victim)
            if victim is request:
                return False
            if self.kv.allocate(request, num_new_tokens) is not None:
                return True

    # ---- leaving -------------------------------------------------------------------------------

    def _preempt_all_but(self, kept: Collection[str]) -> None:
        for request in reversed(list(self.running.values())):
            if request.request_id not in kept:
                self._preempt(request)

    def _preempt(self, request: Request) -> None:
        """Take everything from a running request but its tokens; it waits in front of all others."""
        self._release(request)
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        self.stats.num_preemptions += 1
        self.waiting.push_front(request)

    def _disown(self, failed: list[Request], output: SchedulerOutput) -> None:
        """Nobody may find what a failed computation wrote in this step, or go on from it.

        A request admitted in the step may have taken it over. If it sampled, its own result says whether
        that was any good; if not, nobody knows, and it starts over.
        """
        for request in failed:
            self.kv.uncommit(request)
        for scheduled in reversed(output.scheduled):
            if scheduled.new_request is not None and not scheduled.samples:
                request = self._requests[scheduled.request_id]
                self.kv.uncommit(request)
                if not request.is_finished:
                    self._preempt(request)

    def _forget(self, request: Request) -> None:
        """A finished request leaves the scheduler."""
        if not self._arrivals.remove(request.request_id):
            self._release(request)
        del self._requests[request.request_id]

    def _release(self, request: Request) -> None:
        """Take blocks and row from a running request: the one path for every end and for preemption."""
        del self.running[request.request_id]
        self.kv.free(request)
        request.num_computed_tokens = 0
        self._released_ids.append(request.request_id)

    # ---- begin and end of a step -------------------------------------------------------------------

    def _begin_step(self, only: Collection[str] | None) -> StepPlan:
        config = self._config
        return StepPlan(
            token_budget=0 if self.pause_mode is PauseMode.ALL else config.max_num_batched_tokens,
            chunk_limit=chunk_limit(config, num_requests=len(self._requests)),
            may_split=config.enable_chunked_prefill,
            admits=self.pause_mode is None,
            only=only,
            block_size=self.kv.block_size,
        )

    def _start(self, step: StepPlan) -> SchedulerOutput:
        if not step.scheduled:  # releases are told with the next step that is run
            return SchedulerOutput(self._num_steps, ())
        self._num_steps += 1
        self._under_way = step
        released_ids, self._released_ids = self._released_ids, []
        scheduled = tuple(step.scheduled.values())
        return SchedulerOutput(self._num_steps, scheduled, self.kv.take_block_copies(), released_ids)

    def _end_step(self, output: SchedulerOutput) -> None:
        if self._under_way is None or output.step != self._num_steps:
            raise InvariantError(f"step {output.step} is not under way; the last one was {self._num_steps}")
        self._under_way = None

    def _check_no_step_under_way(self, operation: str) -> None:
        if self._under_way is not None:
            raise InvariantError(f"{operation} while step {self._num_steps} is under way; end that first")
