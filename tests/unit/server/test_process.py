"""`octavo serve` as a process of its own: what a supervisor sees of its end."""

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from async_harness import PATIENCE_S
from server_harness import parse_events

FAULT = Path(__file__).parents[2] / "fixtures" / "dying_server.py"


@contextmanager
def process(model, *, num_steps=10**9, num_requests=1):
    """The process and its address; its engine dies after so many steps of so many requests."""
    command = [
        sys.executable,
        FAULT,
        str(num_steps),
        str(num_requests),
        "serve",
        "--model",
        model,
        "--port",
        "0",
        "--num-blocks",
        "64",
    ]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if found := re.search(r"http://[0-9.:]+", line):
                    break
            yield server, found[0]
        finally:
            server.kill()
            server.stderr.read()


def opened_stream(url, **body):
    body = {"prompt": [1, 2, 3], "max_tokens": 400, "ignore_eos": True, "stream": True, **body}
    return httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=PATIENCE_S)


def end_of_stream(url):
    """The last thing that a stream says, or what is said instead of it."""
    with opened_stream(url) as response:
        text = response.read().decode()
        return parse_events(text)[-1] if response.status_code == 200 else response.json()


def is_healthy(url):
    try:
        return httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200
    except httpx.TransportError:
        return False


def test_a_process_whose_engine_dies_says_so_to_everybody_and_ends(tiny_llama):
    with (
        process(tiny_llama(), num_steps=20, num_requests=3) as (server, url),
        ThreadPoolExecutor(3) as clients,
    ):
        assert is_healthy(url)
        answers = [each.result() for each in [clients.submit(end_of_stream, url) for _ in range(3)]]
        assert not is_healthy(url)
        assert server.wait(PATIENCE_S) == 1
    assert [answer["error"]["code"] for answer in answers] == ["engine_dead"] * 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_stop_finishes_what_it_has_begun(tiny_llama, number):
    with process(tiny_llama()) as (server, url), opened_stream(url, max_tokens=200) as response:
        lines = response.iter_lines()
        next(lines)
        server.send_signal(number)
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert server.wait(PATIENCE_S) == 0
