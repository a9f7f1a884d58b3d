"""`Load`: what is sent to a server, and `LoadProcess`, which sends it."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

from server_process import ServerProcess

from octavo.bench.workloads import random_tokens

FOLDER = Path(__file__).resolve().parent
VOCAB_SIZE = 49_152


class LoadError(Exception):
    """A job failed; the message has what the server said."""


class Load(NamedTuple):
    """Prompts, and when each is sent [s from the start]."""

    prompts: list[list[int]]
    offsets: list[float]
    output_tokens: int


def closed_load(num_requests: int, prompt_tokens: int, output_tokens: int, seed: int) -> Load:
    """Everything at once: as many streams as there are requests."""
    prompts = random_tokens(num_requests, prompt_tokens, seed, vocab_size=VOCAB_SIZE)
    return Load(prompts, [0.0] * num_requests, output_tokens)


class Mix(NamedTuple):
    """What arrivals are like."""

    prompt_tokens: int
    """Of each request's own."""
    output_tokens: int
    shared_tokens: int
    """Of the prefix that some begin with."""
    shared_share: float
    """How many begin with it, 0 … 1."""


def poisson_load(mix: Mix, *, rate: float, num_requests: int, seed: int) -> Load:
    """Arrivals at random, ``rate`` per second in the mean, whatever the server does with them."""
    draw = random.Random(seed)
    [prefix] = random_tokens(1, mix.shared_tokens, seed + 1, vocab_size=VOCAB_SIZE)
    own = random_tokens(num_requests, mix.prompt_tokens, seed + 2, vocab_size=VOCAB_SIZE)
    prompts = [prefix + tokens if draw.random() < mix.shared_share else tokens for tokens in own]
    offsets, now = [], 0.0
    for _ in range(num_requests):
        now += draw.expovariate(rate)
        offsets.append(now)
    return Load(prompts, offsets, mix.output_tokens)


class LoadProcess:
    """The load generator."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "load_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    @property
    def process_id(self) -> int:
        """Of the load generator."""
        return self._process.pid

    def run(self, server: ServerProcess, load: Load) -> dict[str, Any]:
        """Send a load and wait for the last answer.

        Raises:
            LoadError: the server failed.
        """
        job = {"url": server.url, "model": server.model, **load._asdict()}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the load generator has ended"}')
        if "error" in answer:
            raise LoadError(f"{server.name}: {answer['error']}")
        return answer
