"""`Arrivals`: requests on their way into the waiting queue, and those that never get there."""

from collections import deque
from concurrent.futures import Future
from typing import Any, NamedTuple

from octavo.errors import EngineError, OctavoError
from octavo.sched.queue import WaitingQueue
from octavo.sched.request import Request


class Refusal(NamedTuple):
    """A request that must be ended before it was admitted."""

    request_id: str
    error: OctavoError


class Arrivals:
    """Holds a request back while something that it needs is being made, for example its grammar.

    Whoever is held back is not in the queue, so it costs no step anything.

    Args:
        queue: where requests go that are ready.
    """

    def __init__(self, queue: WaitingQueue) -> None:
        self._queue = queue
        self._held_back: dict[str, Request] = {}
        self._completed: deque[Request] = deque()  # appended to by the threads that make what is needed

    def __len__(self) -> int:
        """Requests that are held back."""
        return len(self._held_back)

    @property
    def has_news(self) -> bool:
        """Whether `take_refused` has something to do."""
        return bool(self._completed)

    def add(self, request: Request) -> None:
        """Let a new request wait: in the queue, or here until it may go there."""
        prerequisite = request.prerequisite
        if prerequisite is None:
            self._queue.push(request)
            return
        self._held_back[request.request_id] = request

        def complete(_: "Future[Any]") -> None:
            self._completed.append(request)

        prerequisite.add_done_callback(complete)

    def remove(self, request_id: str) -> bool:
        """Take a request from here or from the queue; returns whether it was in either."""
        return self._held_back.pop(request_id, None) is not None or self._queue.remove(request_id)

    def take_refused(self) -> list[Refusal]:
        """Let those into the queue whose wait is over; returns those that got an error instead.

        They stay here until they are removed.
        """
        refused = []
        while self._completed:
            request = self._completed.popleft()
            if self._held_back.get(request.request_id) is not request or request.prerequisite is None:
                continue  # it ended meanwhile
            error = request.prerequisite.exception()
            if error is None:
                del self._held_back[request.request_id]
                self._queue.push(request)
            else:
                refused.append(Refusal(request.request_id, _told(error)))
        return refused


def _told(error: BaseException) -> OctavoError:
    if isinstance(error, OctavoError):
        return error
    told = EngineError(f"what the request needs could not be made: {error!r}")
    told.__cause__ = error
    return told
