"""Waiting queues: first come first served, or by priority.

Both offer the same few operations. `WaitingQueue.put_back` returns what was taken off the front;
`WaitingQueue.remove` takes a request from anywhere, which is what an abort needs.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from octavo.sched.request import Request


class WaitingQueue(Protocol):
    """Requests that wait to be admitted, the next one at the front. Each is in it at most once."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """The requests in the order in which they would be taken."""
        ...

    def push(self, request: Request) -> None:
        """Add a request that has just arrived."""
        ...

    def peek(self) -> Request:
        """The front request, which stays; the queue must not be empty."""
        ...

    def pop(self) -> Request:
        """Take the front request; the queue must not be empty."""
        ...

    def put_back(self, requests: Sequence[Request]) -> None:
        """Put requests in front, in the order given: skipped ones and preempted ones."""
        ...

    def remove(self, request_id: str) -> bool:
        """Take a request from anywhere; returns whether it was there."""
        ...


class FCFSQueue:
    """First come, first served; what is put back goes to the front. Every operation is O(1)."""

    def __init__(self) -> None:
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def push(self, request: Request) -> None:
        """Add a request at the end."""
        self._requests[request.request_id] = request

    def peek(self) -> Request:
        """The front request, which stays."""
        return next(iter(self._requests.values()))

    def pop(self) -> Request:
        """Take the front request."""
        return self._requests.popitem(last=False)[1]

    def put_back(self, requests: Sequence[Request]) -> None:
        """Put requests in front, in the order given."""
        for request in reversed(requests):
            self._requests[request.request_id] = request
            self._requests.move_to_end(request.request_id, last=False)

    def remove(self, request_id: str) -> bool:
        """Take a request from anywhere; returns whether it was there."""
        return self._requests.pop(request_id, None) is not None


class _Entry(NamedTuple):
    """A place in the heap; no two precedences are equal, so requests themselves are never compared."""

    precedence: tuple[int, float, int]
    request: Request


class PriorityQueue:
    """Lowest `Request.precedence` first, also among requests that are put back.

    A removed request leaves its entry in the heap until the entry reaches the front or most entries
    are such leftovers, so every operation is O(log n), amortised.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        return (entry.request for entry in sorted(self._entries.values()))

    def push(self, request: Request) -> None:
        """Add a request at the place that its precedence gives it."""
        entry = _Entry(request.precedence, request)
        self._entries[request.request_id] = entry
        heappush(self._heap, entry)

    def peek(self) -> Request:
        """The front request, which stays."""
        while not self._is_live(self._heap[0]):
            heappop(self._heap)
        return self._heap[0].request

    def pop(self) -> Request:
        """Take the front request."""
        request = self.peek()
        heappop(self._heap)
        del self._entries[request.request_id]
        return request

    def put_back(self, requests: Sequence[Request]) -> None:
        """Put requests back at the places that their precedences give them."""
        for request in requests:
            self.push(request)

    def remove(self, request_id: str) -> bool:
        """Take a request from anywhere; returns whether it was there."""
        if self._entries.pop(request_id, None) is None:
            return False
        if len(self._heap) > 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapify(self._heap)
        return True

    def _is_live(self, entry: _Entry) -> bool:
        return self._entries.get(entry.request.request_id) is entry
