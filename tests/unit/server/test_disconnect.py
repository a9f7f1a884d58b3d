"""Clients that go away, at any moment: their requests end within one step and hold nothing."""

import socket
import threading

import pytest
from async_harness import PATIENCE_S, Gate, LateGate, endless
from server_harness import connect, serving, wait_until

MESSAGES = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/completions", {"prompt": ["x", "yy", "zzz"], "n": 2}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
    ],
    ids=["one prompt", "several", "chat"],
)
@pytest.mark.parametrize("gate_type", [Gate, LateGate], ids=["before the first token", "later"])
def test_a_request_ends_within_a_step(gate_type, path, body, stream):
    gate = gate_type()
    with serving(gate) as server:
        connection = connect(server, path, max_tokens=100, stream=stream, **body)
        assert gate.entered.wait(PATIENCE_S)
        if stream and gate_type is LateGate:
            assert b"200 OK" in connection.recv(4096)
        connection.close()
        wait_until(lambda: server.engine.num_unfinished_requests == 0)
        num_steps = server.fake.runner.num_submitted
        gate.opened.set()
        server.until_idle()
        assert server.fake.runner.num_submitted == num_steps


def test_others_go_on():
    gate = LateGate()
    with serving(gate) as server:
        connection = connect(server, "/v1/completions", prompt="x", max_tokens=50, stream=True)
        assert gate.entered.wait(PATIENCE_S)
        answers = []
        other = threading.Thread(target=lambda: answers.append(server.complete("y", max_tokens=6).json()))
        other.start()
        wait_until(lambda: server.engine.num_unfinished_requests == 2)
        connection.close()
        wait_until(lambda: server.engine.num_unfinished_requests == 1)
        gate.opened.set()
        other.join(PATIENCE_S)
        assert answers[0]["choices"][0]["text"] == "aaaxxx"
        server.until_idle()


def test_a_client_that_leaves_while_it_waits_holds_no_place():
    gate = Gate()
    with serving(gate, max_num_seqs=1) as server:
        running = connect(server, "/v1/completions", prompt="x", max_tokens=5)
        assert gate.entered.wait(PATIENCE_S)
        waiting = connect(server, "/v1/completions", prompt="y", max_tokens=5)
        wait_until(lambda: server.engine.num_unfinished_requests == 2)
        waiting.close()
        wait_until(lambda: server.engine.num_unfinished_requests == 1)
        gate.opened.set()
        answer = b""
        with running:
            while b'"usage"' not in answer:
                answer += running.recv(65536)
        assert b'"text":"xxxxx"' in answer
        server.until_idle()


def test_a_client_that_leaves_before_it_has_sent_its_body_is_nothing():
    with serving(endless) as server:
        host, port = server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), PATIENCE_S)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        connection.close()
        assert server.complete(max_tokens=1).status_code == 200
        server.until_idle()
