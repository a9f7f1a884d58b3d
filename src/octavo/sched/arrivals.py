"""`Arrivals`: requests on their way into the waiting queue, and those that never get there."""

import math
from collections import OrderedDict, deque
from concurrent.futures import Future
from typing import Any, NamedTuple

from octavo.errors import EngineError, OctavoError, QueueTimeoutError
from octavo.sched.fair_queue import FairQueue, TenantShare
from octavo.sched.request import Request, RequestStatus


class Refusal(NamedTuple):
    """A request that must be ended before it was admitted."""

    request_id: str
    error: OctavoError


class Arrivals:
    """Holds a request back while something that it needs is being made, for example its grammar.

    Whoever is held back is not in the queue, so it costs no step anything.

    A request that was never admitted within the time limit is refused, with its siblings.

    Args:
        queue: where requests go that are ready.
        timeout_s: how long a request may wait to be admitted; 0 sets no limit.
    """

    def __init__(self, queue: FairQueue, *, timeout_s: float = 0.0) -> None:
        self._queue = queue
        self._timeout_s = timeout_s
        self._by_arrival: OrderedDict[str, Request] = OrderedDict()
        self._held_back: dict[str, Request] = {}
        # Appended to by the threads that make what is needed. No requests: futures outlive them.
        self._completed: deque[tuple[str, Future[Any]]] = deque()

    def __len__(self) -> int:
        """Requests that are held back."""
        return len(self._held_back)

    @property
    def num_waiting_tokens(self) -> int:
        """Prompt tokens of all requests here and in the queue."""
        held_back = self._held_back.values()
        return self._queue.num_tokens + sum(request.num_prompt_tokens for request in held_back)

    def waiting_of(self, tenant: str) -> TenantShare:
        """What a tenant has here and in the queue; nothing for requests that are nobody's in particular."""
        if not tenant:
            return TenantShare(0, 0)
        queued = self._queue.share_of(tenant)
        held = [request for request in self._held_back.values() if request.tenant == tenant]
        return TenantShare(
            queued.num_requests + len(held),
            queued.num_tokens + sum(request.num_prompt_tokens for request in held),
        )

    @property
    def next_deadline(self) -> float:
        """When the oldest request that was never admitted is to be refused; infinite if there is none."""
        while self._by_arrival:
            oldest = next(iter(self._by_arrival.values()))
            if oldest.status is RequestStatus.WAITING:
                return oldest.arrival_time + self._timeout_s
            del self._by_arrival[oldest.request_id]
        return math.inf

    @property
    def has_news(self) -> bool:
        """Whether somebody who was held back need be no more."""
        return bool(self._completed)

    def add(self, request: Request) -> None:
        """Let a new request wait: in the queue, or here until it may go there."""
        if self._timeout_s > 0 and request.choice_index == 0:
            self._by_arrival[request.request_id] = request
        prerequisite = request.prerequisite
        if prerequisite is None:
            self._queue.push(request)
            return
        request_id = request.request_id
        self._held_back[request_id] = request

        def complete(future: "Future[Any]") -> None:
            self._completed.append((request_id, future))

        prerequisite.add_done_callback(complete)

    def remove(self, request_id: str) -> bool:
        """Take a request from here or from the queue; returns whether it was in either."""
        self._by_arrival.pop(request_id, None)
        return self._held_back.pop(request_id, None) is not None or self._queue.remove(request_id)

    def take_refused(self, now: float) -> list[Refusal]:
        """Let those into the queue whose wait is over; returns those that must be ended instead.

        They stay here until they are removed.

        Args:
            now: on the clock of the requests' arrival times [s].
        """
        refused = self._take_expired(now) if self._by_arrival else []
        while self._completed:
            request_id, future = self._completed.popleft()
            request = self._held_back.get(request_id)
            if request is None or request.prerequisite is not future:
                continue  # it ended meanwhile
            error = future.exception()
            if error is None:
                del self._held_back[request_id]
                self._queue.push(request)
            else:
                refused.append(Refusal(request_id, _told(error)))
        return refused

    def _take_expired(self, now: float) -> list[Refusal]:
        expired = []
        while self.next_deadline <= now:
            _, request = self._by_arrival.popitem(last=False)
            waited_s = now - request.arrival_time
            error = QueueTimeoutError(
                f"the request waited {waited_s:.1f} s and may wait {self._timeout_s:g} s (queue_timeout); "
                f"{len(self._queue)} requests are waiting; try again later"
            )
            expired.append(Refusal(request.request_id, error))
        return expired


def _told(error: BaseException) -> OctavoError:
    if isinstance(error, OctavoError):
        return error
    told = EngineError(f"what the request needs could not be made: {error!r}")
    told.__cause__ = error
    return told
