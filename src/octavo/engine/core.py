"""`EngineCore`: schedule, compute, update, over and over."""

import logging
import time
from collections.abc import Callable

from octavo.engine.abort_cause import AbortCause
from octavo.engine.fault_isolation import FaultIsolation
from octavo.engine.runner import Runner
from octavo.engine.telemetry import EngineTelemetry
from octavo.errors import EngineDeadError, InvariantError, StepError
from octavo.sched.diagnosis import why_nothing_runs
from octavo.sched.output import SchedulerOutput
from octavo.sched.request import FinishReason, Request
from octavo.sched.scheduler import Scheduler
from octavo.sched.update import RequestUpdate

logger = logging.getLogger(__name__)

MAX_IDLE_STEPS = 3
"""Steps in a row without work, while requests wait, that are taken for a deadlock."""


class EngineCore:
    """One scheduler and one runner in step. Not thread-safe: one thread owns it.

    Any exception but `StepError` leaves the state unknown, so the core is dead from then on and says so.

    Attributes:
        scheduler: whose requests these are.
        runner: what computes them.
        num_steps: steps that ran, failed ones left out.
        num_failed_steps: steps that failed since the start.
        telemetry: what is counted and timed.

    Args:
        clock: for telemetry [s].
    """

    def __init__(
        self, scheduler: Scheduler, runner: Runner, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.telemetry = EngineTelemetry(scheduler, clock)
        self.num_steps = 0
        self.num_failed_steps = 0
        self._isolation = FaultIsolation(runner)
        self._num_idle_in_a_row = 0
        self._cause_of_death: BaseException | None = None

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether any request is under way, held back by a pause or not."""
        return self.scheduler.has_unfinished_requests

    def add(self, *requests: Request) -> None:
        """Let requests wait, all or none; for errors see `Scheduler.add`."""
        self._check_alive()
        self.scheduler.add(*requests)

    def finish(
        self,
        request_id: str,
        reason: FinishReason,
        *,
        stop_reason: str | None = None,
        cause: AbortCause | None = None,
    ) -> bool:
        """End a request from outside; returns whether it was there and still going."""
        self.telemetry.request_ended(request_id, reason, cause)
        return self.scheduler.finish(request_id, reason, stop_reason=stop_reason)

    def step(self) -> list[RequestUpdate]:
        """Run one step.

        A step that fails as a whole changes no request: all that were in it start over in the next one. If a
        request is at fault, it is found by and by, and fails alone.

        Raises:
            EngineDeadError: the runner computes nothing any more, or the engine died before.
        """
        self._check_alive()
        try:
            output = self.scheduler.schedule(self._isolation.trial(self.scheduler.__contains__))
            return self._compute(output) if output.scheduled else self._idle()
        except BaseException as error:
            self._die(error)
            raise

    def close(self) -> None:
        """Give back what the runner holds; nothing can be computed any more."""
        if self._cause_of_death is None:
            self._cause_of_death = EngineDeadError("the engine was closed")
        self.runner.close()

    def _compute(self, output: SchedulerOutput) -> list[RequestUpdate]:
        self._num_idle_in_a_row = 0
        self.telemetry.step_began(output)
        try:
            runner_output = self.runner.submit(output).result()
        except StepError as error:
            return self._roll_back(output, error)
        self._isolation.step_ran(output)
        self.num_steps += 1
        updates = self.scheduler.update(output, runner_output)
        self.telemetry.step_ended(updates)
        return updates

    def _roll_back(self, output: SchedulerOutput, error: StepError) -> list[RequestUpdate]:
        """All requests of a failed step start over, but the one that is at fault, once that is known."""
        self.scheduler.rollback(output)
        self.telemetry.step_failed()
        self.num_failed_steps += 1
        culprit = self._isolation.step_failed(output, error)
        if culprit is None:
            logger.warning("step %d failed and is tried again: %s", output.step, error)
            return []
        logger.error("request %s fails every step that it is in, and is ended: %s", culprit, error)
        self.finish(culprit, FinishReason.ERROR)
        message = f"this request cannot be computed, and it alone: every step that it was in failed ({error})"
        return [RequestUpdate(culprit, finish_reason=FinishReason.ERROR, error=message)]

    def _idle(self) -> list[RequestUpdate]:
        """Nothing was scheduled. While there is work, a deadlock."""
        is_stuck = self.scheduler.has_work
        reason = why_nothing_runs(self.scheduler) if is_stuck else ""
        self.telemetry.nothing_scheduled(reason)
        self._num_idle_in_a_row = self._num_idle_in_a_row + 1 if is_stuck else 0
        if self._num_idle_in_a_row >= MAX_IDLE_STEPS:
            scheduler = self.scheduler
            raise InvariantError(
                f"{MAX_IDLE_STEPS} steps in a row made no progress: {scheduler.num_running} requests "
                f"running, {scheduler.num_waiting} waiting, {self.runner.num_blocks} blocks; "
                f"{reason}"
            )
        return []

    def _die(self, error: BaseException) -> None:
        self._cause_of_death = error
        logger.critical(
            "the engine died after %d steps (%d failed) with %d requests running and %d waiting: %r",
            self.num_steps,
            self.num_failed_steps,
            self.scheduler.num_running,
            self.scheduler.num_waiting,
            error,
        )

    def _check_alive(self) -> None:
        if self._cause_of_death is not None:
            # Some errors, as KeyboardInterrupt, have no text of their own.
            cause = str(self._cause_of_death) or type(self._cause_of_death).__name__
            raise EngineDeadError(f"the engine is dead: {cause}") from self._cause_of_death
