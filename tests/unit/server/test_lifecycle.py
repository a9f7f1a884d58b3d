"""The end of a server: a drain after a signal, a second signal, the death of its engine."""

import asyncio
import os
import signal
import socket
import threading

import httpx
import pytest
from async_harness import PATIENCE_S, Gate, LateGate, endless
from engine_fakes import ByteTokenizer, make_engine
from server_harness import application, parse_events, wait_until

from octavo.engine.lifecycle import EngineState
from octavo.errors import ConfigError, EngineDeadError
from octavo.server.config import ServerConfig
from octavo.server.lifecycle import bind, serve
from octavo.server.systemd import ServiceManager


class Life:
    """One server in the main thread, where signals arrive, and a client in another."""

    def __init__(self, script, **config):
        self.fake = make_engine(script)
        self.engine = None
        self.config = ServerConfig(**config)
        self.url = ""

    def run(self, visit, *, on_ready=lambda: None):
        """Serve; ``visit(self)`` runs in a thread once the server is ready; its result is returned."""
        results = []
        visitor = threading.Thread(target=lambda: results.append(visit(self)))
        listener = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def be_ready():
            on_ready()
            visitor.start()

        async def main(app):
            async with self.engine:
                serving = serve(app, listener, on_ready=be_ready, manager=ServiceManager({}))
                await asyncio.wait_for(serving, PATIENCE_S)

        with application(self.fake.engine, ByteTokenizer(), config=self.config) as (app, self.engine):
            try:
                asyncio.run(main(app))
            finally:
                visitor.join(PATIENCE_S)
        return results[0]

    def stream(self):
        """Everything a stream says until its end."""
        body = {"prompt": "x", "max_tokens": 6, "stream": True}
        response = httpx.post(f"{self.url}/v1/completions", json=body, timeout=PATIENCE_S)
        return response, parse_events(response.text) if response.status_code == 200 else None

    def status(self, path):
        return httpx.get(f"{self.url}{path}", timeout=PATIENCE_S).status_code


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_an_idle_server():
    def visit(life):
        assert (life.status("/health"), life.status("/ready")) == (200, 200)
        terminate()

    life = Life(endless)
    life.run(visit)
    assert life.engine.state is EngineState.STOPPED


def test_whoever_is_told_that_it_is_ready_can_connect():
    life, connected = Life(endless), []

    def connect_at_once():
        host, port = life.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            connected.append(connection.getpeername())

    life.run(lambda _: terminate(), on_ready=connect_at_once)
    assert connected


def test_after_a_signal_what_runs_is_finished_and_what_is_new_is_refused():
    gate = LateGate()

    def visit(life):
        answers = []
        running = threading.Thread(target=lambda: answers.append(life.stream()))
        running.start()
        assert gate.entered.wait(PATIENCE_S)
        terminate()
        wait_until(lambda: life.engine.state is EngineState.DRAINING)
        assert (life.status("/health"), life.status("/ready")) == (200, 503)
        refused, _ = life.stream()
        gate.opened.set()
        running.join(PATIENCE_S)
        return refused, answers[0][1]

    refused, events = Life(gate).run(visit)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
    assert int(refused.headers["Retry-After"]) > 0
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "aaaxxx"
    assert events[-1] == "[DONE]"


@pytest.mark.parametrize("num_signals", [1, 2])
def test_what_is_not_finished_in_time_ends_with_an_error(num_signals):
    gate = LateGate()

    def visit(life):
        answers = []
        running = threading.Thread(target=lambda: answers.append(life.stream()))
        running.start()
        assert gate.entered.wait(PATIENCE_S)
        terminate()
        wait_until(lambda: life.engine.state is EngineState.DRAINING)
        if num_signals == 2:
            deadline = life.engine._thread._deadline
            terminate()
            wait_until(lambda: life.engine._thread._deadline < deadline)
        gate.opened.set()
        running.join(PATIENCE_S)
        return answers[0][1]

    life = Life(gate, drain_timeout=0.0 if num_signals == 1 else 1000.0)
    events = life.run(visit)
    assert events[-1]["error"]["code"] == "shutting_down"
    assert life.fake.kv.num_free_blocks == life.fake.kv.num_blocks


def test_a_dead_engine_ends_every_stream_and_the_server():
    gate = Gate()

    def script(request_id, position):
        gate(request_id, position)
        if position == 2:
            raise RuntimeError("the memory is on fire")
        return ord("a")

    def visit(life):
        answers = []
        streams = [threading.Thread(target=lambda: answers.append(life.stream())) for _ in range(3)]
        for stream in streams:
            stream.start()
        wait_until(lambda: life.engine.num_unfinished_requests == 3)
        gate.opened.set()
        for stream in streams:
            stream.join(PATIENCE_S)
        return answers

    life, answers = Life(script), []
    with pytest.raises(EngineDeadError, match="the memory is on fire"):
        life.run(lambda life: answers.extend(visit(life)))
    assert life.engine.state is EngineState.DEAD
    assert len(answers) == 3
    for response, events in answers:
        error = response.json()["error"] if events is None else events[-1]["error"]
        assert error["code"] == "engine_dead"
        assert events is None or "[DONE]" not in events


def test_an_address_that_is_taken_is_a_wrong_configuration():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["300.1.1.1", "a" * 300])
def test_an_address_that_does_not_exist_is_a_wrong_configuration(host):
    with pytest.raises(ConfigError, match="cannot listen"):
        bind(host, 0)
