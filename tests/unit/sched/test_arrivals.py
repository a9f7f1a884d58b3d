"""`Arrivals`: who is held back, who is let in, and who cannot be."""

import gc
import math
import weakref
from concurrent.futures import Future

import pytest

from octavo.errors import EngineError, InvalidRequestError, QueueTimeoutError
from octavo.sampling_params import SamplingParams
from octavo.sched.arrivals import Arrivals
from octavo.sched.fair_queue import FairQueue
from octavo.sched.queue import FCFSQueue
from octavo.sched.request import Request, RequestStatus


def make(name, prerequisite=None):
    return Request(name, (1, 2), SamplingParams(), seed=0, prerequisite=prerequisite)


class Tracked(Request):
    """Without slots, so that it can be referred to weakly."""


@pytest.fixture
def queue():
    return FairQueue(FCFSQueue, heeds_priority=False)


@pytest.fixture
def arrivals(queue):
    return Arrivals(queue)


def names(queue):
    return [request.request_id for request in queue]


def test_whoever_needs_nothing_waits_in_the_queue(arrivals, queue):
    arrivals.add(make("a"))
    assert (names(queue), len(arrivals), arrivals.has_news) == (["a"], 0, False)


def test_others_are_held_back_until_what_they_need_is_there(arrivals, queue):
    futures = [Future() for _ in range(3)]
    for name, future in zip("abc", futures, strict=True):
        arrivals.add(make(name, future))
    arrivals.add(make("d"))
    futures[1].set_result("grammar")
    assert (names(queue), len(arrivals), arrivals.has_news) == (["d"], 3, True)
    assert arrivals.take_refused(0.0) == []
    assert (names(queue), len(arrivals), arrivals.has_news) == (["d", "b"], 2, False)


def test_what_is_there_already_holds_nobody_back_for_long(arrivals, queue):
    done = Future()
    done.set_result(None)
    arrivals.add(make("a", done))
    assert arrivals.take_refused(0.0) == []
    assert names(queue) == ["a"]


def test_an_error_is_told_and_the_request_stays_until_it_is_removed(arrivals, queue):
    future = Future()
    arrivals.add(make("a", future))
    arrivals.add(make("b", future))
    error = InvalidRequestError("wrong")
    future.set_exception(error)
    assert arrivals.take_refused(0.0) == [("a", error), ("b", error)]
    assert arrivals.take_refused(0.0) == []
    assert (names(queue), len(arrivals)) == ([], 2)
    assert arrivals.remove("a")
    assert not arrivals.remove("a")
    assert len(arrivals) == 1


def test_who_left_is_remembered_by_nobody(queue):
    """Neither by what it waited for, which others may still hold, nor behind somebody who waits longer."""
    arrivals, future = Arrivals(queue, timeout_s=10.0), Future()
    arrivals.add(make("first"))
    left = Tracked("left", (1, 2), SamplingParams(), seed=0, prerequisite=future)
    arrivals.add(left)
    assert arrivals.remove("left")
    left = weakref.ref(left)
    gc.collect()
    assert left() is None
    future.set_result(None)
    assert arrivals.take_refused(0.0) == []


def test_a_request_that_left_is_not_let_in_even_if_its_name_is_used_again(arrivals, queue):
    old, new = Future(), Future()
    arrivals.add(make("a", old))
    assert arrivals.remove("a")
    arrivals.add(make("a", new))
    old.set_result(None)
    assert arrivals.take_refused(0.0) == []
    assert (names(queue), len(arrivals)) == ([], 1)


def test_a_bug_in_what_makes_it_is_no_fault_of_the_request_and_ends_it_alone(arrivals):
    future = Future()
    arrivals.add(make("a", future))
    future.set_exception(ZeroDivisionError())
    [refusal] = arrivals.take_refused(0.0)
    assert type(refusal.error) is EngineError
    assert "ZeroDivisionError" in str(refusal.error)


def test_whoever_waited_too_long_is_refused_unless_it_was_admitted(queue):
    arrivals = Arrivals(queue, timeout_s=5.0)
    for name, arrival_time in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 9.0)):
        request = make(name, Future() if name == "c" else None)
        request.arrival_time = arrival_time
        arrivals.add(request)
    queue.pop().status = RequestStatus.RUNNING
    assert arrivals.next_deadline == 7.0
    assert arrivals.take_refused(6.9) == []
    first, second = arrivals.take_refused(8.0)
    assert (first.request_id, second.request_id) == ("b", "c")
    assert isinstance(first.error, QueueTimeoutError)
    assert "waited 6.0 s and may wait 5 s (queue_timeout)" in str(first.error)
    assert arrivals.next_deadline == 14.0


def test_without_a_limit_there_is_no_deadline(arrivals, queue):
    arrivals.add(make("a"))
    assert arrivals.next_deadline == math.inf
    assert arrivals.take_refused(1e9) == []


def test_waiting_tokens_are_those_of_all_prompts(arrivals, queue):
    arrivals.add(make("a"))
    arrivals.add(make("b", Future()))
    assert arrivals.num_waiting_tokens == 4
    arrivals.remove("b")
    queue.pop()
    assert arrivals.num_waiting_tokens == 0
