"""Ended requests are written, in order, by somebody else than the engine's thread."""

import logging
import threading

import pytest
from finished_requests import finished_request

from octavo.engine.abort_cause import AbortCause
from octavo.sched.request import FinishReason
from octavo.server.request_log import LogLines, RequestLog, cause_of_end, log_fields


class Notes:
    """Keeps what it is given; may fail, may wait."""

    def __init__(self, error=None, gate=None):
        self.written = []
        self.is_closed = False
        self.threads = set()
        self._error = error
        self._gate = gate

    def write(self, finished):
        self.threads.add(threading.get_ident())
        if self._gate is not None:
            assert self._gate.wait(60)
        if self._error is not None:
            raise self._error
        self.written.append(finished.request_id)

    def close(self):
        self.is_closed = True


def test_every_writer_gets_every_request_in_order_before_it_is_closed():
    notes = [Notes(), Notes()]
    log = RequestLog(notes)
    log.start()
    for number in range(100):
        log.put(finished_request(request_id=str(number)))
    log.close()
    for note in notes:
        assert note.written == [str(number) for number in range(100)]
        assert note.is_closed
        assert threading.get_ident() not in note.threads


def test_a_writer_that_fails_takes_nothing_from_the_others(caplog):
    broken, whole = Notes(OSError("no space left")), Notes()
    log = RequestLog([broken, whole])
    log.start()
    log.put(finished_request(request_id="a"))
    log.put(finished_request(request_id="b"))
    log.close()
    assert whole.written == ["a", "b"]
    assert [record.exc_info[1].args for record in caplog.records] == [("no space left",)] * 2


def test_what_writing_does_not_keep_up_with_is_dropped_and_counted():
    gate = threading.Event()
    notes = Notes(gate=gate)
    log = RequestLog([notes], capacity=2)
    for number in range(5):
        log.put(finished_request(request_id=str(number)))
    log.start()
    gate.set()
    log.close()
    assert notes.written == ["0", "1"]
    assert log.num_dropped == 3


def test_a_log_that_never_started_can_be_closed():
    RequestLog([Notes()]).close()


def test_a_line_per_request(caplog):
    with caplog.at_level(logging.INFO, "octavo.server.request_log"):
        LogLines().write(finished_request())
    (record,) = caplog.records
    assert record.fields == {
        "request_id": "mine",
        "id": "chatcmpl-1-0",
        "cause": "stop",
        "prompt_tokens": 40,
        "cached_tokens": 16,
        "output_tokens": 4,
        "preemptions": 1,
        "queue_s": 0.25,
        "first_token_s": 1.0,
        "last_token_s": 2.5,
        "total_s": 2.5,
    }


def test_a_request_that_never_ran_has_no_times_of_running():
    waiting = finished_request(
        scheduled_at=None, first_token_at=None, last_token_at=None, abort_cause=AbortCause.TIMEOUT
    )
    fields = log_fields(waiting)
    assert (fields["cause"], fields["total_s"]) == ("timeout", 2.5)
    assert not {"queue_s", "first_token_s", "last_token_s"} & set(fields)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "stop"),
        ({"finish_reasons": [FinishReason.STOP, FinishReason.LENGTH, FinishReason.STOP]}, "stop,length"),
        (
            {
                "finish_reasons": [FinishReason.STOP, FinishReason.ABORT],
                "abort_cause": AbortCause.CLIENT_GONE,
            },
            "client_gone",
        ),
        (
            {
                "finish_reasons": [FinishReason.ERROR, FinishReason.ABORT],
                "abort_cause": AbortCause.SIBLING_FAILED,
            },
            "error",
        ),
    ],
)
def test_one_word_says_why_it_ended(changes, cause):
    assert cause_of_end(finished_request(**changes)) == cause
