"""`EngineTelemetry`: what an engine counts and times, and the one place where other threads may look.

The engine's thread calls it a few times per step and replaces two records as a whole: `activity` when
what it does changes, `snapshot` after steps. Readers take no lock and never see half of a change.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from octavo.engine.abort_cause import AbortCause
from octavo.engine.activity import Activity, ActivityKind
from octavo.engine.histogram import LATENCY_BOUNDS, SMALL_COUNT_BOUNDS, TOKEN_BOUNDS, Histogram
from octavo.engine.request_record import ChoiceTimes, FinishedRequest, RequestRecord
from octavo.engine.snapshot import EngineCounts, EngineSnapshot
from octavo.kv.census import take_census
from octavo.sched.diagnosis import num_unfilled_slots
from octavo.sched.output import SchedulerOutput
from octavo.sched.request import FinishReason, Request
from octavo.sched.scheduler import Scheduler
from octavo.sched.update import RequestUpdate

HISTOGRAM_BOUNDS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "time_to_first_token_seconds": LATENCY_BOUNDS,
        "inter_token_latency_seconds": LATENCY_BOUNDS,
        "request_time_per_output_token_seconds": LATENCY_BOUNDS,
        "e2e_request_latency_seconds": LATENCY_BOUNDS,
        "request_queue_time_seconds": LATENCY_BOUNDS,
        "request_inference_time_seconds": LATENCY_BOUNDS,
        "request_prefill_time_seconds": LATENCY_BOUNDS,
        "request_decode_time_seconds": LATENCY_BOUNDS,
        "request_prompt_tokens": TOKEN_BOUNDS,
        "request_generation_tokens": TOKEN_BOUNDS,
        "request_params_max_tokens": TOKEN_BOUNDS,
        "request_params_n": SMALL_COUNT_BOUNDS,
        "request_num_preemptions": SMALL_COUNT_BOUNDS,
        "iteration_tokens_total": TOKEN_BOUNDS,
        "step_seconds": LATENCY_BOUNDS,
    }
)
"""What is observed, and the upper bounds of its buckets."""

PUBLISH_EVERY_S = 0.05
"""While steps bring nothing but further tokens."""

_COMPLETE = frozenset({FinishReason.STOP, FinishReason.LENGTH})


class EngineTelemetry:
    """Counts, times and publishes. Only the engine's thread calls its methods.

    Args:
        scheduler: whose state is published.
        clock: the engine's [s].

    Attributes:
        activity: what the engine's thread is doing.
        last_progress_at: when a step last computed something, or work arrived at an idle engine.
        idle_reason: why the last try to schedule gave nothing although there was work; empty if it gave some.
        snapshot: the state after the last step, or up to `PUBLISH_EVERY_S` older if no request got its first
            token, ended or failed since.
        num_generation_tokens: generated since the start, over all requests.
        on_finished: is told of every request that has ended, in the engine's thread; must return at once.
    """

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float]) -> None:
        self.activity = Activity(ActivityKind.IDLE, clock())
        self.last_progress_at = clock()
        self.idle_reason = ""
        self.on_finished: Callable[[FinishedRequest], None] | None = None
        self._scheduler = scheduler
        self._clock = clock
        self._choices: dict[str, ChoiceTimes] = {}
        self._with_token: set[str] = set()  # choices under way that got a token in the last step
        self._token_at = 0.0  # when that was; their own `last_token_at` is from before
        self._histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAM_BOUNDS.items()}
        self._ttft = self._histograms["time_to_first_token_seconds"]
        self._itl = self._histograms["inter_token_latency_seconds"]
        self._finished: Counter[str] = Counter()
        self._aborted: Counter[str] = Counter()
        self._num_steps = self._num_failed_steps = 0
        self._num_prompt_tokens = self._num_cached_tokens = self.num_generation_tokens = 0
        self.publish()

    # ── the thread ──

    def rest(self) -> None:
        """There is nothing to do."""
        self.publish_if_due(at_rest=True)
        self.activity = Activity(ActivityKind.IDLE, self._clock())

    def wake(self) -> None:
        """Something has arrived, or the next step is due."""
        now = self._clock()
        if self.activity.kind is ActivityKind.IDLE and not self._scheduler.has_unfinished_requests:
            self.last_progress_at = now
        self.activity = Activity(ActivityKind.BETWEEN_STEPS, now)

    def publish(self) -> None:
        """Let others see what has changed."""
        self.snapshot = self._take_snapshot()
        self._published_at, self._has_news = self.last_progress_at, False

    def publish_if_due(self, *, at_rest: bool = False) -> None:
        """After steps that only added tokens, do it now and then: nobody looks at most of them."""
        unseen_s = self.last_progress_at - self._published_at
        if self._has_news or unseen_s >= PUBLISH_EVERY_S or (at_rest and unseen_s > 0.0):
            self.publish()

    # ── steps ──

    def step_began(self, output: SchedulerOutput) -> None:
        """The runner is about to get ``output``."""
        now = self._clock()
        num_tokens = 0
        for scheduled in output.scheduled:
            num_tokens += len(scheduled.token_ids)
            if scheduled.new_request is not None:
                self._note_start(scheduled.request_id, now)
        self._histograms["iteration_tokens_total"].observe(num_tokens)
        self.idle_reason = ""
        self.activity = Activity(ActivityKind.STEP, now, output.step, len(output.scheduled), num_tokens)

    def step_ended(self, updates: Sequence[RequestUpdate]) -> None:
        """The runner has computed the step, and the scheduler has made ``updates`` of it."""
        now = self._clock()
        self._histograms["step_seconds"].observe(now - self.activity.since)
        self._num_steps += 1
        self.activity = Activity(ActivityKind.BETWEEN_STEPS, now)
        self.last_progress_at = now
        self._note_tokens({update.request_id for update in updates if update.token_id is not None}, now)
        for update in updates:
            if update.finish_reason is None:
                continue
            choice = self._choices.get(update.request_id)
            if choice is None:
                continue  # aborted while the step was under way
            if update.embedding is not None:
                self._count_prompt(choice.request)
            self._end(choice, update.finish_reason, now)

    def step_failed(self) -> None:
        """The step was rolled back."""
        self._num_failed_steps += 1
        self._has_news = True
        self.activity = Activity(ActivityKind.BETWEEN_STEPS, self._clock())

    def nothing_scheduled(self, reason: str) -> None:
        """There is work, and no token of it was scheduled."""
        self.idle_reason = reason

    # ── requests ──

    def request_added(
        self, request_id: str, requests: Sequence[Request], trace_headers: Mapping[str, str] | None = None
    ) -> None:
        """A caller's request waits, as these requests of the scheduler."""
        record = RequestRecord(request_id, requests, self._clock(), trace_headers)
        for request in requests:
            self._choices[request.request_id] = ChoiceTimes(request, record)

    def request_ended(self, choice_id: str, reason: FinishReason, cause: AbortCause | None = None) -> None:
        """A continuation was ended from outside a step; an unknown one is ignored."""
        choice = self._choices.get(choice_id)
        if choice is not None:
            choice.record.abort_cause = cause or choice.record.abort_cause
            self._end(choice, reason, self._clock())

    def engine_died(self) -> None:
        """Whatever is under way will not be done."""
        for choice_id in list(self._choices):
            self.request_ended(choice_id, FinishReason.ABORT, AbortCause.ENGINE_DEAD)
        self.publish()

    def _note_start(self, choice_id: str, now: float) -> None:
        choice = self._choices.get(choice_id)
        if choice is not None and choice.scheduled_at is None:
            choice.scheduled_at = now
            choice.record.scheduled_at = choice.record.scheduled_at or now

    def _note_tokens(self, choice_ids: set[str], now: float) -> None:
        """Each of these has a new token; nearly always they had one in the step before as well."""
        choices, before = self._choices, self._with_token
        self._with_token = choice_ids & choices.keys()
        self.num_generation_tokens += len(self._with_token)
        if go_on := before & self._with_token:
            self._itl.observe(now - self._token_at, len(go_on))
        for choice_id in before - go_on:
            choices[choice_id].last_token_at = self._token_at
        for choice_id in self._with_token - go_on:
            choice = choices[choice_id]
            if choice.last_token_at is None:
                self._note_first_token(choice, now)
            else:
                self._itl.observe(now - choice.last_token_at)
        self._token_at = now

    def _note_first_token(self, choice: ChoiceTimes, now: float) -> None:
        record = choice.record
        choice.first_token_at = now
        self._has_news = True
        self._ttft.observe(now - record.arrived_at)
        self._count_prompt(choice.request)
        if record.first_token_at is None:
            record.first_token_at = now

    def _count_prompt(self, request: Request) -> None:
        self._num_prompt_tokens += request.num_prompt_tokens
        self._num_cached_tokens += request.num_cached_tokens

    def _end(self, choice: ChoiceTimes, reason: FinishReason, now: float) -> None:
        choice_id = choice.request.request_id
        if choice_id in self._with_token:
            self._with_token.remove(choice_id)
            choice.last_token_at = self._token_at
        del self._choices[choice_id]
        self._has_news = True
        record = choice.record
        record.finish_reasons.append(reason)
        token_times = [at for at in (record.last_token_at, choice.last_token_at) if at is not None]
        record.last_token_at = max(token_times, default=None)
        self._finished[reason.value] += 1
        if reason in _COMPLETE:
            self._observe_complete(choice, now)
        if record.is_finished:
            if record.abort_cause is not None:
                self._aborted[record.abort_cause.value] += 1
            if self.on_finished is not None:
                self.on_finished(record.finished(now, self._scheduler.kv.block_size))

    def _observe_complete(self, choice: ChoiceTimes, now: float) -> None:
        request, record = choice.request, choice.record
        if choice.scheduled_at is None or choice.first_token_at is None or choice.last_token_at is None:
            return  # no token was generated, so there are no phases
        num_tokens = request.num_output_tokens
        decode_s = choice.last_token_at - choice.first_token_at
        values = {
            "e2e_request_latency_seconds": now - record.arrived_at,
            "request_queue_time_seconds": choice.scheduled_at - record.arrived_at,
            "request_inference_time_seconds": choice.last_token_at - choice.scheduled_at,
            "request_prefill_time_seconds": choice.first_token_at - choice.scheduled_at,
            "request_decode_time_seconds": decode_s,
            "request_prompt_tokens": request.num_prompt_tokens,
            "request_generation_tokens": num_tokens,
            "request_params_n": request.sampling_params.n,
            "request_num_preemptions": request.num_preemptions,
        }
        if num_tokens > 1:
            values["request_time_per_output_token_seconds"] = decode_s / (num_tokens - 1)
        if request.sampling_params.max_tokens is not None:
            values["request_params_max_tokens"] = request.sampling_params.max_tokens
        for name, value in values.items():
            self._histograms[name].observe(value)

    # ── publishing ──

    def _take_snapshot(self) -> EngineSnapshot:
        scheduler = self._scheduler
        return EngineSnapshot(
            scheduler.num_running,
            scheduler.num_waiting,
            scheduler.pause_mode is not None,
            num_unfilled_slots(scheduler),
            take_census(scheduler.kv),
            self._count(),
            dict(self._finished),
            dict(self._aborted),
            {name: histogram.counts() for name, histogram in self._histograms.items()},
        )

    def _count(self) -> EngineCounts:
        stats = self._scheduler.stats
        return EngineCounts(
            self._num_steps,
            self._num_failed_steps,
            stats.num_preemptions,
            stats.prefix_cache.num_query_tokens,
            stats.prefix_cache.num_hit_tokens,
            self._num_prompt_tokens,
            self._num_cached_tokens,
            self.num_generation_tokens,
        )
