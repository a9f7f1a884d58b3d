"""The adapters' side of the protocol: a line of JSON in, a line of JSON out. Standard library only.

An adapter is a process that holds one engine. It says ``{"ready": {name, version, settings}}`` once the
model is loaded, then answers each ``{"prompts": [[token, …], …], "output_tokens": n}`` with
``{"wall": s, "first": [s per request], "end": [s per request], "tokens": [count per request]}``, times
counted from the moment at which all requests were submitted. An error is ``{"error": text}``. An empty line
ends it.

Engines print what they like: file descriptor 1 is moved away from under them, so that only answers are read.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

Times = dict[str, Any]

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Recorder:
    """When each request's tokens came."""

    def __init__(self, num_requests: int) -> None:
        self._start = time.perf_counter()
        self.first: list[float | None] = [None] * num_requests
        self.end = [0.0] * num_requests
        self.tokens = [0] * num_requests

    def add(self, request: int, count: int = 1) -> None:
        """``count`` more tokens of a request have come."""
        now = time.perf_counter() - self._start
        if self.first[request] is None:
            self.first[request] = now
        self.end[request] = now
        self.tokens[request] += count

    def times(self) -> Times:
        """The answer: everything has ended now."""
        wall = time.perf_counter() - self._start
        return {"wall": wall, "first": self.first, "end": self.end, "tokens": self.tokens}


def take_stdout() -> TextIO:
    """A stream to the real stdout; whatever the engine prints there goes to stderr from now on.

    From now on, too, this process ends with the driver: stopped as it mostly is, it would not notice.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def serve(answers: TextIO, description: Times, run: Callable[[list[list[int]], int], Times]) -> None:
    """Say what the engine is and answer jobs until there are no more.

    Args:
        answers: what `take_stdout` returned, called before the engine was imported.
        description: ``name``, ``version`` and ``settings`` of the engine.
        run: computes all prompts at once, to exactly so many tokens each.
    """
    _write(answers, {"ready": description})
    for line in sys.stdin:
        if not line.strip():
            return
        job = json.loads(line)
        try:
            answer = run(job["prompts"], job["output_tokens"])
        except Exception as error:  # the driver reports it beside the engine's name
            answer = {"error": f"{type(error).__name__}: {error}"}
        _write(answers, answer)


def _write(answers: TextIO, message: Times) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()
