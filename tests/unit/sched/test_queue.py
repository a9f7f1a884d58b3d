"""Waiting queues."""

import pytest

from octavo.sampling_params import SamplingParams
from octavo.sched.queue import FCFSQueue, PriorityQueue
from octavo.sched.request import Request


def make_request(request_id, *, priority=0, index=0, arrival_time=0.0):
    request = Request(request_id, [1], SamplingParams(), seed=0, priority=priority, arrival_time=arrival_time)
    request.arrival_index = index
    return request


def ids(queue):
    return [request.request_id for request in queue]


@pytest.fixture(params=[FCFSQueue, PriorityQueue])
def queue(request):
    queue = request.param()
    for index, name in enumerate("abcde"):
        queue.push(make_request(name, index=index))
    return queue


def test_takes_in_order_of_arrival(queue):
    assert len(queue) == 5
    assert queue.peek().request_id == "a"
    assert [queue.pop().request_id for _ in range(5)] == list("abcde")
    assert len(queue) == 0
    assert not queue


def test_put_back_restores_the_order(queue):
    skipped = [queue.pop() for _ in range(3)]
    queue.put_back(skipped)
    assert ids(queue) == list("abcde")
    queue.put_back([])
    assert ids(queue) == list("abcde")


def test_remove_from_anywhere(queue):
    assert queue.remove("c")
    assert not queue.remove("c")
    assert not queue.remove("unknown")
    assert queue.remove("a")
    assert queue.peek().request_id == "b"
    assert ids(queue) == ["b", "d", "e"]
    assert [queue.pop().request_id for _ in range(3)] == ["b", "d", "e"]


def test_fcfs_puts_preempted_requests_in_front():
    queue = FCFSQueue()
    queue.push(make_request("late", index=1))
    for name in ("second", "first"):  # the last one running is preempted first
        queue.put_back([make_request(name, index=9)])
    assert ids(queue) == ["first", "second", "late"]


def test_priority_orders_by_priority_value():
    """T68: priorities [2, 0, 1] are taken as 1, 2, 0."""
    queue = PriorityQueue()
    for index, priority in enumerate([2, 0, 1]):
        queue.push(make_request(str(index), priority=priority, index=index))
    assert ids(queue) == ["1", "2", "0"]


def test_priority_ties_are_broken_by_arrival():
    """T68: priorities [2, 1, 1, 0] with arrivals [1, 3, 2, 4] are taken as 3, 2, 1, 0."""
    queue = PriorityQueue()
    for index, (priority, arrival) in enumerate(zip([2, 1, 1, 0], [1.0, 3.0, 2.0, 4.0], strict=True)):
        queue.push(make_request(str(index), priority=priority, arrival_time=arrival, index=index))
    assert [queue.pop().request_id for _ in range(4)] == ["3", "2", "1", "0"]


def test_priority_puts_requests_back_at_their_own_place():
    queue = PriorityQueue()
    for index, priority in enumerate([0, 1, 2]):
        queue.push(make_request(str(index), priority=priority, index=index))
    first, second = queue.pop(), queue.pop()
    queue.put_back([second])
    queue.put_back([first])
    assert ids(queue) == ["0", "1", "2"]


def test_priority_queue_forgets_removed_requests():
    queue = PriorityQueue()
    for index in range(1000):
        queue.push(make_request(str(index), index=index))
    for index in range(1, 1000):
        assert queue.remove(str(index))
    assert len(queue._heap) <= 3, "removed requests must not pile up"
    assert ids(queue) == ["0"]


def test_priority_queue_takes_the_same_id_again_after_its_removal():
    queue = PriorityQueue()
    for index in range(4):
        queue.push(make_request(str(index), index=index))
    queue.remove("0")
    queue.push(make_request("0", index=9))
    assert [queue.pop().request_id for _ in range(4)] == ["1", "2", "3", "0"]
