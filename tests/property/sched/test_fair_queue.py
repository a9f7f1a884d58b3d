"""`FairQueue`: nothing is lost, one tenant alone notices nothing, and no tenant starves another."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.sampling_params import SamplingParams
from octavo.sched.fair_queue import FairQueue
from octavo.sched.queue import FCFSQueue, PriorityQueue
from octavo.sched.request import Request

QUEUES = {False: FCFSQueue, True: PriorityQueue}
sizes = st.integers(1, 40)


def make(name, tenant="", *, size=3, priority=0):
    params = SamplingParams(max_tokens=1)
    request = Request(str(name), [0] * size, params, seed=0, priority=priority, tenant=tenant)
    request.arrival_index = int(name)
    return request


def fair(heeds_priority=False):
    return FairQueue(QUEUES[heeds_priority], heeds_priority=heeds_priority)


names = st.sampled_from(["push", "pop", "skip", "put_back", "push_front", "remove"])
operations = st.lists(st.tuples(names, st.integers(0, 3), sizes, st.integers(0, 2)))


@pytest.mark.parametrize("heeds_priority", [False, True])
@settings(deadline=None, max_examples=150)
@given(script=operations)
def test_nothing_is_lost_and_the_order_is_the_one_told(heeds_priority, script):
    queue, inside, taken, skipped = fair(heeds_priority), {}, [], []
    for number, (operation, tenant, size, priority) in enumerate(script):
        if operation == "push":
            request = make(number, f"t{tenant}", size=size, priority=priority)
            queue.push(request)
            inside[request.request_id] = request
        elif operation in ("pop", "skip") and inside:
            front = queue.peek()
            assert getattr(queue, operation)() is front
            (taken if operation == "pop" else skipped).append(inside.pop(front.request_id))
        elif operation == "put_back":
            queue.put_back(skipped)
            inside.update((request.request_id, request) for request in skipped)
            skipped = []
        elif operation == "push_front" and taken:
            request = taken.pop()
            queue.push_front(request)
            inside[request.request_id] = request
        elif operation == "remove" and inside:
            name = sorted(inside)[number % len(inside)]
            del inside[name]
            assert queue.remove(name)
            assert not queue.remove(name)
        assert len(queue) == len(inside)
        assert queue.num_tokens == sum(request.num_prompt_tokens for request in inside.values())
    told = list(queue)
    assert [queue.pop() for _ in range(len(queue))] == told
    assert {request.request_id for request in told} == set(inside)
    if heeds_priority:
        assert [request.priority for request in told] == sorted(request.priority for request in told)


@pytest.mark.parametrize("heeds_priority", [False, True])
@settings(deadline=None, max_examples=100)
@given(script=operations)
def test_one_tenant_alone_has_the_order_of_its_queue(heeds_priority, script):
    queue, plain, outside = fair(heeds_priority), QUEUES[heeds_priority](), []
    for number, (operation, _, size, priority) in enumerate(script):
        if operation == "push":
            request = make(number, size=size, priority=priority)
            queue.push(request)
            plain.push(request)
        elif operation == "skip" and len(plain):
            outside.append(plain.pop())
            assert queue.skip() is outside[-1]
        elif operation == "pop" and len(plain):
            assert queue.pop() is plain.pop()
        elif operation == "put_back":
            queue.put_back(outside)
            plain.put_back(outside)
            outside = []
    assert list(queue) == list(plain)


@settings(deadline=None, max_examples=100)
@example(waiting=[(0, 40)] * 20, num_skipped=20)
@given(
    waiting=st.lists(st.tuples(st.integers(0, 3), sizes), min_size=1, max_size=30),
    num_skipped=st.integers(0, 30),
)
def test_who_is_skipped_changes_nothing_for_anybody(waiting, num_skipped):
    """Who waits for a prefix costs its tenant nothing, and puts no newcomer behind a flood."""
    skipping, other = fair(), fair()
    for queue in (skipping, other):
        for number, (tenant, size) in enumerate(waiting):
            queue.push(make(number, f"t{tenant}", size=size))
    skipping.put_back([skipping.skip() for _ in range(min(num_skipped, len(waiting)))])
    for queue in (skipping, other):
        for number in range(1000, 1020):
            queue.push(make(number, "newcomer", size=20))
    served = {queue: Counter() for queue in (skipping, other)}
    for _ in range(len(waiting) + 20):
        for queue in (skipping, other):
            request = queue.pop()
            served[queue][request.tenant] += request.num_prompt_tokens + 1
        for name in served[skipping] | served[other]:  # they may take turns in another order
            assert abs(served[skipping][name] - served[other][name]) <= 2 * 41


@settings(deadline=None, max_examples=60)
@given(costs=st.lists(st.lists(sizes, min_size=30, max_size=30), min_size=2, max_size=5))
def test_tenants_who_always_wait_get_the_same_but_for_one_request(costs):
    queue, served, number = fair(), Counter(), 0
    for tenant, tenant_costs in enumerate(costs):
        for size in tenant_costs:
            number += 1
            queue.push(make(number, f"t{tenant}", size=size))
    for _ in range(30):  # nobody runs dry in that time
        request = queue.pop()
        served[request.tenant] += request.num_prompt_tokens + 1
        given_to = [served[f"t{tenant}"] for tenant in range(len(costs))]
        assert max(given_to) - min(given_to) <= 41


@settings(deadline=None, max_examples=60)
@given(flood=st.lists(sizes, min_size=5, max_size=60), num_taken=st.integers(0, 4), size=sizes)
def test_a_newcomer_waits_for_one_request_of_a_flood_at_most(flood, num_taken, size):
    queue = fair()
    for number, flood_size in enumerate(flood):
        queue.push(make(number, "flood", size=flood_size))
    for _ in range(num_taken):
        queue.pop()
    queue.push(make(1000, "newcomer", size=size))
    assert "newcomer" in [queue.pop().tenant for _ in range(min(2, len(queue)))]


def test_a_pause_is_neither_paid_for_nor_saved_up():
    queue = fair()
    for number in range(40):
        queue.push(make(number, "busy"))
    queue.push(make(100, "rare"))
    for _ in range(20):
        queue.pop()
    for number in range(200, 240):
        queue.push(make(number, "rare"))
    turns = [queue.pop().tenant for _ in range(20)]
    assert Counter(turns) == {"busy": 10, "rare": 10}


def test_tenants_that_are_done_are_forgotten():
    queue = fair()
    for number in range(5000):
        queue.push(make(number, f"tenant {number}"))
        queue.pop()
    assert len(queue._tenants) < 700
    assert len(queue._heap) < 2000
