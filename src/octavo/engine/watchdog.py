"""`Watchdog`: notices work without progress, and says why there is none.

It looks from a thread of its own, since a step that hangs does not come back to say so. What it finds is
logged once when it begins and once when it is over, and can be read in between.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from octavo.engine.activity import ActivityKind
from octavo.engine.snapshot import EngineSnapshot
from octavo.engine.telemetry import EngineTelemetry

logger = logging.getLogger(__name__)

DEFAULT_STALL_S = 60.0
_LOOKS_PER_LIMIT = 4


class StallReason(StrEnum):
    """Why work makes no progress."""

    STEP_HANGS = "step_hangs"
    """The runner has not come back."""
    THREAD_BUSY = "thread_busy"
    """The engine's thread is doing something else than a step."""
    NOTHING_SCHEDULED = "nothing_scheduled"
    """Steps are tried, and nobody gets a token, or the steps fail."""
    PAUSED = "paused"
    """Somebody paused the engine."""
    HELD_BACK = "held_back"
    """What the requests need, a grammar for example, is still being made."""


class Stall(NamedTuple):
    """Work without progress."""

    reason: StallReason
    since_s: float
    """How long ago there was progress."""
    detail: str
    """In one sentence, for people."""


def find_stall(telemetry: EngineTelemetry, *, limit_s: float, now: float) -> Stall | None:
    """Whether there has been work, and no progress, for more than ``limit_s``."""
    activity, since_s = telemetry.activity, now - telemetry.last_progress_at
    busy_s = now - activity.since
    if activity.kind is ActivityKind.IDLE:
        return _stall_at_rest(telemetry.snapshot, since_s) if since_s > limit_s else None
    if busy_s > limit_s and activity.kind is ActivityKind.STEP:
        size = f"{activity.num_tokens} tokens of {activity.num_requests} requests"
        return Stall(StallReason.STEP_HANGS, busy_s, f"step {activity.step} is computing {size}")
    if busy_s > limit_s:
        return Stall(StallReason.THREAD_BUSY, busy_s, "the engine's thread is busy between two steps")
    if since_s > limit_s:
        detail = telemetry.idle_reason or "steps fail"
        return Stall(StallReason.NOTHING_SCHEDULED, since_s, detail)
    return None


def _stall_at_rest(snapshot: EngineSnapshot, since_s: float) -> Stall | None:
    """Whether somebody waits while the engine rests, and what for."""
    num_requests = snapshot.num_running + snapshot.num_waiting
    if not num_requests:
        return None
    if snapshot.is_paused:
        return Stall(StallReason.PAUSED, since_s, f"{num_requests} requests wait: the engine is paused")
    detail = f"{num_requests} requests wait for what they need, a grammar for example, to be made"
    return Stall(StallReason.HELD_BACK, since_s, detail)


class Watchdog:
    """Looks again and again, in a thread, until it is stopped.

    Args:
        telemetry: of the engine, once there is one.
        limit_s: work without progress for longer than this is a stall.
        clock: the engine's [s].
    """

    def __init__(
        self,
        telemetry: Callable[[], EngineTelemetry | None],
        limit_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stall: Stall | None = None
        self._num_stalls: Counter[StallReason] = Counter()
        self._telemetry = telemetry
        self._limit_s = limit_s
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octavo-watchdog", daemon=True)

    @property
    def num_stalls(self) -> dict[StallReason, int]:
        """Stalls since the start, by reason."""
        return dict(self._num_stalls)

    def start(self) -> None:
        """Begin to look; calling it again does nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def look(self) -> None:
        """Look once."""
        telemetry = self._telemetry()
        if telemetry is None:
            return
        before = self.stall
        self.stall = found = find_stall(telemetry, limit_s=self._limit_s, now=self._clock())
        if found is not None and (before is None or before.reason is not found.reason):
            self._num_stalls[found.reason] += 1
            logger.error("no progress for %.0f s (%s): %s", found.since_s, found.reason, found.detail)
        elif found is None and before is not None:
            logger.warning("there is progress again, after a stall (%s)", before.reason)

    def _run(self) -> None:
        while not self._stopped.wait(self._limit_s / _LOOKS_PER_LIMIT):
            self.look()
