"""Keys that share a server: a flood by one neither delays the others nor shuts them out."""

import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from async_harness import PATIENCE_S, Gate, endless
from server_harness import serving, wait_until

from octavo.server.config import ServerConfig

TWO_KEYS = ServerConfig(api_key=("flood", "other"))
COMPLETIONS = "/v1/completions"


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def ask(server, key, prompt="x", **body):
    headers = {**bearer(key), "X-Request-Id": key}
    return server.client.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 2, **body}, headers=headers)


def send(server, key, **body):
    """A request on a socket of its own, sent and not read."""
    content = json.dumps({"prompt": "x", "max_tokens": 2, **body}).encode()
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key or 'none'}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), PATIENCE_S)
    connection.sendall(head.encode() + content)
    return connection


def embed(server, key):
    return server.client.post("/v1/embeddings", json={"input": "x"}, headers=bearer(key))


def test_a_flood_by_one_key_does_not_delay_another(caplog):
    gate = Gate()
    with (
        caplog.at_level(logging.INFO, "octavo.server.request_log"),
        serving(gate, config=TWO_KEYS, max_num_seqs=1) as server,
        ThreadPoolExecutor(21) as clients,
    ):
        answers = [clients.submit(ask, server, "flood") for _ in range(20)]
        wait_until(lambda: server.engine.num_unfinished_requests == 20)
        answers.append(clients.submit(ask, server, "other"))
        wait_until(lambda: server.engine.num_unfinished_requests == 21)
        gate.opened.set()
        assert {answer.result(PATIENCE_S).status_code for answer in answers} == {200}
    assert ended_in_order(caplog).index("other") <= 2


def test_a_flood_by_one_key_leaves_room_in_the_queue_for_another():
    gate = Gate()
    with serving(gate, config=TWO_KEYS, max_num_seqs=1, max_waiting_requests=8) as server:
        running = send(server, "flood", max_tokens=1)
        assert gate.entered.wait(PATIENCE_S)
        waiting = [send(server, "flood") for _ in range(4)]
        wait_until(lambda: server.engine.num_unfinished_requests == 5)
        with ThreadPoolExecutor(2) as clients:
            refused = clients.submit(ask, server, "flood")
            welcome = clients.submit(ask, server, "other")
            wait_until(lambda: server.engine.num_unfinished_requests == 7)
            gate.opened.set()
            assert welcome.result(PATIENCE_S).status_code == 200
            response = refused.result(PATIENCE_S)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert "4 requests of yours are waiting" in response.json()["error"]["message"]
        assert int(response.headers["Retry-After"]) > 0
        for connection in (running, *waiting):
            connection.close()
        server.until_idle()


def test_a_full_queue_is_nobodys_fault_without_keys():
    gate = Gate()
    with serving(gate, max_num_seqs=1, max_waiting_requests=2) as server:
        connections = [send(server, "")]
        assert gate.entered.wait(PATIENCE_S)
        connections += [send(server, "") for _ in range(2)]
        wait_until(lambda: server.engine.num_unfinished_requests == 3)
        with ThreadPoolExecutor(1) as clients:
            refused = clients.submit(ask, server, "")
            wait_until(lambda: server.engine.num_unfinished_requests == 4)
            gate.opened.set()
            response = refused.result(PATIENCE_S)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
        assert int(response.headers["Retry-After"]) > 0
        for connection in connections:
            connection.close()


def unhurried(request_id, position):
    time.sleep(0.005)
    return endless(request_id, position)


def causes_in(caplog):
    """Why requests ended, as the log tells it."""
    return [record.fields["cause"] for record in caplog.records if hasattr(record, "fields")]


def ended_in_order(caplog):
    """The ids that clients gave their requests."""
    return [record.fields["request_id"] for record in caplog.records if hasattr(record, "fields")]


def test_who_waits_too_long_is_told_to_come_again(caplog):
    with (
        caplog.at_level(logging.INFO, "octavo.server.request_log"),
        serving(unhurried, max_num_seqs=1, queue_timeout=0.05, clock=time.monotonic) as server,
    ):
        running = send(server, "", max_tokens=190)
        wait_until(lambda: server.fake.runner.num_submitted > 0)
        response = ask(server, "")
        running.close()
        server.until_idle()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "queue_timeout")
    assert int(response.headers["Retry-After"]) > 0
    assert sorted(causes_in(caplog)) == ["client_gone", "timeout"]


def test_embeddings_belong_to_their_key_too():
    gate = Gate()
    with serving(gate, config=TWO_KEYS, max_num_seqs=1, max_waiting_requests=4) as server:
        running = send(server, "flood", max_tokens=1)
        assert gate.entered.wait(PATIENCE_S)
        waiting = [send(server, "flood") for _ in range(2)]
        wait_until(lambda: server.engine.num_unfinished_requests == 3)
        with ThreadPoolExecutor(1) as clients:
            refused = clients.submit(embed, server, "flood")
            wait_until(lambda: server.engine.num_unfinished_requests == 4)
            gate.opened.set()
            assert refused.result(PATIENCE_S).status_code == 429
        for connection in (running, *waiting):
            connection.close()


def test_the_others_of_a_request_that_fails_are_not_called_gone(caplog):
    with caplog.at_level(logging.INFO, "octavo.server.request_log"), serving(unhurried) as server:
        assert server.complete(["x", "y", "x" * 300]).status_code == 400
        server.until_idle()
    assert causes_in(caplog) == ["sibling_failed"] * 2
