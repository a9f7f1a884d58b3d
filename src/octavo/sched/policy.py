"""Scheduling policies: the order of the waiting queue, and who gives way when blocks run out."""

from typing import Protocol

from octavo.config import PolicyName
from octavo.sched.fair_queue import FairQueue
from octavo.sched.queue import FCFSQueue, PriorityQueue
from octavo.sched.request import Request


class SchedulingPolicy(Protocol):
    """The two decisions that a policy takes."""

    def make_queue(self) -> FairQueue:
        """An empty waiting queue in this policy's order."""
        ...

    def victim(self, running: dict[str, Request]) -> Request:
        """The request to preempt.

        Args:
            running: the running requests by id, in order of admission; at least one.
        """
        ...


class FCFSPolicy:
    """First come, first served: the request admitted last gives way."""

    def make_queue(self) -> FairQueue:
        """An empty queue: tenants in turn, each in order of arrival."""
        return FairQueue(FCFSQueue, heeds_priority=False)

    def victim(self, running: dict[str, Request]) -> Request:
        """The request admitted last."""
        return next(reversed(running.values()))


class PriorityPolicy:
    """Lower priority values first: the request with the highest gives way, the latest among equals."""

    def make_queue(self) -> FairQueue:
        """An empty queue: by priority, then tenants in turn, each in order of precedence."""
        return FairQueue(PriorityQueue, heeds_priority=True)

    def victim(self, running: dict[str, Request]) -> Request:
        """The request that comes last in order of precedence."""
        return max(running.values(), key=lambda request: request.precedence)


def make_policy(name: PolicyName) -> SchedulingPolicy:
    """The policy of that name."""
    return PriorityPolicy() if name == "priority" else FCFSPolicy()
