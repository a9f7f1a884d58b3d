"""Who gives way when blocks run out."""

import pytest

from octavo.sampling_params import SamplingParams
from octavo.sched.policy import FCFSPolicy, PriorityPolicy, make_policy
from octavo.sched.request import Request


def running(*priorities_and_arrivals):
    requests = {}
    for index, (priority, arrival_time) in enumerate(priorities_and_arrivals):
        request = Request(
            str(index), [1], SamplingParams(), seed=0, priority=priority, arrival_time=arrival_time
        )
        request.arrival_index = index
        requests[str(index)] = request
    return requests


def test_fcfs_victim_is_the_last_admitted():
    assert FCFSPolicy().victim(running((5, 0.0), (0, 9.0), (1, 1.0))).request_id == "2"


@pytest.mark.parametrize(
    ("requests", "victim"),
    [
        ([(0, 0.0), (5, 0.0), (1, 9.0)], "1"),
        ([(1, 1.0), (1, 3.0), (1, 2.0)], "1"),
        ([(1, 1.0), (1, 1.0)], "1"),
    ],
)
def test_priority_victim_is_the_last_in_priority_then_arrival(requests, victim):
    assert PriorityPolicy().victim(running(*requests)).request_id == victim


@pytest.mark.parametrize(("name", "expected"), [("fcfs", ["0", "1", "2"]), ("priority", ["1", "2", "0"])])
def test_policies_by_name_bring_their_queue(name, expected):
    queue = make_policy(name).make_queue()
    for request in running((5, 0.0), (0, 1.0), (0, 2.0)).values():
        queue.push(request)
    assert [request.request_id for request in queue] == expected
    assert [queue.pop().request_id for _ in expected] == expected
