"""What a client may do before it has said who it is: bounded in bytes and in time."""

import contextlib
import json
import re
import socket
import threading

import pytest
from async_harness import PATIENCE_S, endless, spell
from server_harness import serving, wait_until

from octavo.server import connection
from octavo.server.body_room import BodyHold, BodyRoom
from octavo.server.config import ServerConfig
from octavo.server.errors import ApiError
from octavo.server.protocol.error import ErrorResponse


def dial(server, data=b""):
    host, port = server.url.removeprefix("http://").split(":")
    dialled = socket.create_connection((host, int(port)), PATIENCE_S)
    dialled.sendall(data)
    return dialled


def rest_of(dialled):
    """Everything until the server closes the connection."""
    received = b""
    with dialled:
        while part := dialled.recv(65536):
            received += part
    return received


def error_in(response):
    head, _, body = response.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], ErrorResponse.model_validate(json.loads(body), extra="forbid").error


def test_headers_that_do_not_end_are_refused():
    with serving(spell("x")) as server:
        endless_header = b"a" * 2**26  # more than all buffers on the way
        dialled = dial(server, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with dialled, pytest.raises(ConnectionError):
            dialled.sendall(endless_header)
        assert server.complete().status_code == 200


def test_long_headers_get_an_error_of_the_usual_shape():
    with serving(spell("x")) as server:
        dialled = dial(server, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        for _ in range(7):
            dialled.sendall(b"a" * 10_000)
        status, error = error_in(rest_of(dialled))
    assert (status, error.code) == (b"HTTP/1.1 431 Request Header Fields Too Large", "headers_too_large")


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_gets_an_error_of_the_usual_shape(data):
    with serving(spell("x")) as server:
        status, error = error_in(rest_of(dial(server, data)))
    assert (status, error.code) == (b"HTTP/1.1 400 Bad Request", "invalid_http")


@pytest.mark.parametrize("data", [b"", b"GET /health HT", b"\r\n"])
def test_who_sends_no_request_loses_the_connection(data, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.05)
    with serving(spell("x")) as server:
        assert rest_of(dial(server, data)) == b""


def test_a_second_request_has_to_end_its_head_too(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.05)
    with serving(spell("x")) as server:
        dialled = dial(server, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert dialled.recv(65536).startswith(b"HTTP/1.1 200 OK")
        dialled.sendall(b"GET /ver")
        assert b"HTTP/1.1" not in rest_of(dialled)


def test_a_connection_in_use_is_not_timed(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.01)
    with serving(endless) as server:
        answer = server.complete(max_tokens=100).json()
        assert answer["usage"]["completion_tokens"] == 100


def test_who_does_not_read_its_answers_loses_them(monkeypatch):
    lost, connection_lost = threading.Event(), connection.Connection.connection_lost
    monkeypatch.setattr(connection, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(
        connection.Connection, "connection_lost", lambda *args: (connection_lost(*args), lost.set())
    )
    with serving(endless) as server:
        dialled = dial(server, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        assert lost.wait(PATIENCE_S)
        received = b""
        with contextlib.suppress(ConnectionError):
            received = rest_of(dialled)
        assert received.count(b"HTTP/1.1 200 OK") < 1000


def test_requests_of_one_connection_are_answered_in_order():
    requests = b"".join(
        b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in (b"/version", b"/nowhere", b"/ready")
    )
    with serving(spell("x")) as server:
        dialled = dial(server, requests + b"GET /health HTTP/1.0\r\n\r\n")
        received = rest_of(dialled)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", received) == [b"200", b"404", b"200", b"200"]


def test_bodies_are_held_up_to_a_bound_and_given_back():
    room = BodyRoom(100)
    with BodyHold(room, "") as one:
        one.take(80)
        with BodyHold(room, "") as two, pytest.raises(ApiError) as full:
            two.take(30)
    assert full.value.status == 503
    with BodyHold(room, "") as three:
        three.take(100)


def test_no_key_takes_the_room_of_another():
    room = BodyRoom(100)
    with BodyHold(room, "flood") as flood, BodyHold(room, "other") as other:
        for _ in range(5):
            flood.take(10)
        with pytest.raises(ApiError) as refused:
            flood.take(10)
        other.take(10)
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")


def test_a_server_with_too_many_bodies_refuses_more():
    with serving(endless, config=ServerConfig(max_body_bytes=100)) as server:
        held = [
            dial(
                server,
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n" + b" " * 99,
            )
            for _ in range(32)
        ]
        wait_until(lambda: server.complete("x" * 40).status_code == 503)
        for dialled in held:
            dialled.close()
        wait_until(lambda: server.complete("x" * 40).status_code == 200)
