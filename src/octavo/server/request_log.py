"""`RequestLog`: what is written about requests that have ended, in a thread that holds nobody up."""

import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from octavo.engine.request_record import FinishedRequest
from octavo.sched.request import FinishReason

logger = logging.getLogger(__name__)

CAPACITY = 10_000
"""Ended requests that may wait to be written."""
CLOSE_TIMEOUT_S = 10.0
CLIENT_ID_KEY = "x-request-id"
"""In the trace headers of a request: the id that its client knows."""


class RequestWriter(Protocol):
    """Writes requests that have ended somewhere."""

    def write(self, finished: FinishedRequest) -> None:
        """Write one."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class RequestLog:
    """Hands every ended request to all writers, in order.

    Args:
        writers: what goes wrong in one is logged, and the others still get the request.

    Attributes:
        num_dropped: requests that found too many waiting.
    """

    def __init__(self, writers: Sequence[RequestWriter], *, capacity: int = CAPACITY) -> None:
        self.num_dropped = 0
        self._writers = writers
        self._capacity = capacity
        self._waiting: queue.SimpleQueue[FinishedRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="octavo-request-log", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, finished: FinishedRequest) -> None:
        """Take in one more; returns at once, from any thread."""
        if self._waiting.qsize() >= self._capacity:
            self.num_dropped += 1
        else:
            self._waiting.put(finished)

    def close(self) -> None:
        """Write what waits, and close the writers."""
        self._waiting.put(None)
        if self._thread.ident is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (finished := self._waiting.get()) is not None:
            for writer in self._writers:
                try:
                    writer.write(finished)
                except Exception:
                    logger.exception("a request that has ended could not be written")
        for writer in self._writers:
            try:
                writer.close()
            except Exception:
                logger.exception("what was left could not be written")


class LogLines:
    """One log line per request, with its cause of end and its times. No text of anybody's is in it."""

    def write(self, finished: FinishedRequest) -> None:
        """Log one."""
        logger.info("request ended", extra={"fields": log_fields(finished)})

    def close(self) -> None:
        """Nothing is held back."""


def cause_of_end(finished: FinishedRequest) -> str:
    """Why it ended: the cause of its abort, or the finish reasons of its sequences."""
    if FinishReason.ERROR in finished.finish_reasons:  # whatever was aborted was aborted for it
        return FinishReason.ERROR.value
    if finished.abort_cause is not None:
        return finished.abort_cause.value
    return ",".join(dict.fromkeys(reason.value for reason in finished.finish_reasons))


def log_fields(finished: FinishedRequest) -> dict[str, object]:
    """What a log line says of a request; times are in seconds since it came."""
    headers: Mapping[str, str] = finished.trace_headers or {}
    fields: dict[str, object] = {
        "request_id": headers.get(CLIENT_ID_KEY, finished.request_id),
        "id": finished.request_id,
        "cause": cause_of_end(finished),
        "prompt_tokens": finished.num_prompt_tokens,
        "cached_tokens": finished.num_cached_tokens,
        "output_tokens": finished.num_output_tokens,
        "preemptions": finished.num_preemptions,
    }
    moments = {
        "queue_s": finished.scheduled_at,
        "first_token_s": finished.first_token_at,
        "last_token_s": finished.last_token_at,
        "total_s": finished.ended_at,
    }
    for name, moment in moments.items():
        if moment is not None:
            fields[name] = round(moment - finished.arrived_at, 6)
    return fields
