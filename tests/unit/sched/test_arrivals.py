"""`Arrivals`: who is held back, who is let in, and who cannot be."""

from concurrent.futures import Future

import pytest

from octavo.errors import EngineError, InvalidRequestError
from octavo.sampling_params import SamplingParams
from octavo.sched.arrivals import Arrivals
from octavo.sched.queue import FCFSQueue
from octavo.sched.request import Request


def make(name, prerequisite=None):
    return Request(name, (1, 2), SamplingParams(), seed=0, prerequisite=prerequisite)


@pytest.fixture
def queue():
    return FCFSQueue()


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
    assert arrivals.take_refused() == []
    assert (names(queue), len(arrivals), arrivals.has_news) == (["d", "b"], 2, False)


def test_what_is_there_already_holds_nobody_back_for_long(arrivals, queue):
    done = Future()
    done.set_result(None)
    arrivals.add(make("a", done))
    assert arrivals.take_refused() == []
    assert names(queue) == ["a"]


def test_an_error_is_told_and_the_request_stays_until_it_is_removed(arrivals, queue):
    future = Future()
    arrivals.add(make("a", future))
    arrivals.add(make("b", future))
    error = InvalidRequestError("wrong")
    future.set_exception(error)
    assert arrivals.take_refused() == [("a", error), ("b", error)]
    assert arrivals.take_refused() == []
    assert (names(queue), len(arrivals)) == ([], 2)
    assert arrivals.remove("a")
    assert not arrivals.remove("a")
    assert len(arrivals) == 1


def test_a_request_that_left_is_not_let_in_even_if_its_name_is_used_again(arrivals, queue):
    old, new = Future(), Future()
    arrivals.add(make("a", old))
    assert arrivals.remove("a")
    arrivals.add(make("a", new))
    old.set_result(None)
    assert arrivals.take_refused() == []
    assert (names(queue), len(arrivals)) == ([], 1)


def test_a_bug_in_what_makes_it_is_no_fault_of_the_request_and_ends_it_alone(arrivals):
    future = Future()
    arrivals.add(make("a", future))
    future.set_exception(ZeroDivisionError())
    [refusal] = arrivals.take_refused()
    assert type(refusal.error) is EngineError
    assert "ZeroDivisionError" in str(refusal.error)
