"""`FairQueue`: one waiting queue out of one per tenant, so that a flood from one keeps no other waiting.

The tenant that was given least is next, within a priority if there are any. What a tenant was given is a
virtual time in tokens, charged when a request is taken. A tenant that comes back after a pause starts where
the others are: it neither pays for the pause nor saves it up. With one tenant the order is that of its queue.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nlargest
from typing import NamedTuple

from octavo.sched.queue import WaitingQueue
from octavo.sched.request import Request

MAX_CHARGED_OUTPUT = 1024
"""Tokens of output that a request is charged for at most; how many it will generate nobody knows."""
_MAX_DEBTS = 256
"""Tenants without requests that are remembered for having been given more than others."""
_SPARE_TENANTS = 64
"""Tenants without requests that may be remembered before any is forgotten."""


@dataclass(slots=True, eq=False)
class _Tenant:
    name: str
    queue: WaitingQueue
    served: int
    """Virtual time [tokens]."""
    set_aside: int = 0
    """What its skipped requests cost, which counts until they are put back."""
    num_tokens: int = 0
    """Of the prompts in its queue."""
    version: int = 0
    """Of its entry in the heap; older ones mean nothing."""


class TenantShare(NamedTuple):
    """What a tenant has in the queue."""

    num_requests: int
    num_tokens: int
    """Of their prompts."""


class _Entry(NamedTuple):
    priority: int
    served: int
    version: int
    """Counts up over all tenants, so no two entries are equal and equal tenants take turns."""
    tenant: _Tenant


class FairQueue:
    """Implements `WaitingQueue`; every operation is O(log n) for n requests, amortised.

    Args:
        make_queue: makes the queue of one tenant, which decides the order of its requests.
        heeds_priority: whether the priority of a tenant's next request comes before what it was given.

    Attributes:
        num_tokens: prompt tokens of all requests in it.
    """

    def __init__(self, make_queue: Callable[[], WaitingQueue], *, heeds_priority: bool) -> None:
        self.num_tokens = 0
        self._make_queue = make_queue
        self._heeds_priority = heeds_priority
        self._tenants: dict[str, _Tenant] = {}
        self._requests: dict[str, Request] = {}
        self._heap: list[_Entry] = []
        self._served_now = 0
        self._num_versions = 0
        self._sweep_at = _SPARE_TENANTS

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """The requests in the order in which they would be taken if none arrived."""
        live = [entry for entry in self._heap if _is_live(entry)]
        later = {entry.tenant.name: iter(entry.tenant.queue) for entry in live}
        heap = [(*entry[:3], entry.tenant.name, next(later[entry.tenant.name])) for entry in live]
        heapify(heap)
        turn = self._num_versions
        while heap:
            _, served, _, name, request = heappop(heap)
            yield request
            following = next(later[name], None)
            if following is not None:
                turn += 1
                heappush(heap, (self._priority(following), served + _cost(request), turn, name, following))

    def share_of(self, tenant_name: str) -> TenantShare:
        """What a tenant has in the queue."""
        tenant = self._tenants.get(tenant_name)
        return TenantShare(0, 0) if tenant is None else TenantShare(len(tenant.queue), tenant.num_tokens)

    def push(self, request: Request) -> None:
        """Add a request where its tenant's queue puts it."""
        tenant = self._woken(request.tenant)
        tenant.queue.push(request)
        self._enter([request], tenant)

    def push_front(self, request: Request) -> None:
        """Put a preempted request in front of those of its tenant, which gets back what it was charged."""
        tenant = self._woken(request.tenant)
        tenant.served -= _cost(request)
        tenant.queue.put_back([request])
        self._enter([request], tenant)

    def peek(self) -> Request:
        """The request to be taken next, which stays."""
        while not _is_live(self._heap[0]):
            heappop(self._heap)
        return self._heap[0].tenant.queue.peek()

    def pop(self) -> Request:
        """Take the next request, and charge its tenant for it."""
        request = self.peek()
        tenant = self._tenants[request.tenant]
        self._served_now = max(self._served_now, tenant.served)
        tenant.served += _cost(request)
        tenant.queue.pop()
        self._leave(request, tenant)
        return request

    def skip(self) -> Request:
        """Take the next request until `put_back`. Meanwhile it counts as served: others have their turn."""
        request = self.peek()
        tenant = self._tenants[request.tenant]
        tenant.set_aside += _cost(request)
        tenant.queue.pop()
        self._leave(request, tenant)
        return request

    def put_back(self, requests: Sequence[Request]) -> None:
        """Put skipped requests where they were, as if nothing had been."""
        by_tenant: dict[str, list[Request]] = {}
        for request in requests:
            by_tenant.setdefault(request.tenant, []).append(request)
        for name, skipped in by_tenant.items():
            tenant = self._tenants[name]
            tenant.set_aside -= sum(map(_cost, skipped))
            tenant.queue.put_back(skipped)
            self._enter(skipped, tenant)

    def remove(self, request_id: str) -> bool:
        """Take a request from anywhere; returns whether it was there."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        tenant = self._tenants[request.tenant]
        tenant.queue.remove(request_id)
        self._leave(request, tenant)
        return True

    def _woken(self, name: str) -> _Tenant:
        """The tenant; one that has nothing here starts where the others are."""
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name, self._make_queue(), self._served_now)
        if not len(tenant.queue):
            tenant.served = max(tenant.served, self._served_now)
        return tenant

    def _enter(self, requests: Sequence[Request], tenant: _Tenant) -> None:
        self._requests.update((request.request_id, request) for request in requests)
        num_tokens = sum(request.num_prompt_tokens for request in requests)
        self.num_tokens += num_tokens
        tenant.num_tokens += num_tokens
        self._reschedule(tenant)

    def _leave(self, request: Request, tenant: _Tenant) -> None:
        del self._requests[request.request_id]
        self.num_tokens -= request.num_prompt_tokens
        tenant.num_tokens -= request.num_prompt_tokens
        self._reschedule(tenant)
        if len(self._tenants) > self._sweep_at:
            self._forget_idle_tenants()

    def _reschedule(self, tenant: _Tenant) -> None:
        """The tenant's next request or its time has changed: its entry in the heap is made anew."""
        self._num_versions += 1
        tenant.version = self._num_versions
        if len(tenant.queue):
            priority = self._priority(tenant.queue.peek())
            served = tenant.served + tenant.set_aside
            heappush(self._heap, _Entry(priority, served, tenant.version, tenant))
        if len(self._heap) > 2 * len(self._tenants) + _SPARE_TENANTS:
            self._heap = [entry for entry in self._heap if _is_live(entry)]
            heapify(self._heap)

    def _forget_idle_tenants(self) -> None:
        """Whoever has no request and no debt is as good as new; of debts the largest are remembered."""
        tenants = self._tenants.values()
        kept = [t for t in tenants if len(t.queue) or t.set_aside]
        in_debt = [t for t in tenants if not len(t.queue) and not t.set_aside and t.served > self._served_now]
        kept += nlargest(_MAX_DEBTS, in_debt, key=lambda tenant: tenant.served)
        self._tenants = {tenant.name: tenant for tenant in kept}
        self._sweep_at = 2 * len(self._tenants) + _SPARE_TENANTS

    def _priority(self, request: Request) -> int:
        return request.priority if self._heeds_priority else 0


def _is_live(entry: _Entry) -> bool:
    return entry.version == entry.tenant.version and len(entry.tenant.queue) > 0


def _cost(request: Request) -> int:
    """What a request is taken to need [tokens]; the same whenever it is asked for."""
    return request.num_prompt_tokens + min(
        request.max_num_tokens - request.num_prompt_tokens, MAX_CHARGED_OUTPUT
    )
