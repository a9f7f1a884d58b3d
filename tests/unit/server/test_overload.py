"""More requests than can run and wait are refused before they are read."""

import pytest
from async_harness import PATIENCE_S, Gate
from server_harness import connect, serving, wait_until


@pytest.mark.parametrize("stream", [False, True])
def test_one_request_too_many_is_refused_unread_and_the_next_after_an_end_is_served(stream):
    gate = Gate()
    with serving(gate, max_open_requests=2) as server:
        open_ones = [
            connect(server, "/v1/completions", prompt="x", max_tokens=3, stream=stream) for _ in range(2)
        ]
        assert gate.entered.wait(PATIENCE_S)
        wait_until(lambda: server.engine.num_unfinished_requests == 2)
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
            answer = server.client.post(path, content=b"{not json", headers={"Content-Type": "text/plain"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert answer.json()["error"]["code"] == "overloaded"
            assert "no more than 2 can" in answer.json()["error"]["message"]
        assert server.client.get("/health").status_code == 200
        assert server.post("/tokenize", prompt="x").status_code == 200
        gate.opened.set()
        for connection in open_ones:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            connection.close()
        server.until_idle()
        assert server.complete(max_tokens=1).status_code == 200


def test_clients_that_leave_and_requests_that_are_wrong_keep_no_place():
    gate = Gate()
    with serving(gate, max_open_requests=1) as server:
        connection = connect(server, "/v1/completions", prompt="x", max_tokens=3)
        assert gate.entered.wait(PATIENCE_S)
        connection.close()
        gate.opened.set()
        server.until_idle()
        for _ in range(3):
            assert server.complete(max_tokens=-1).status_code == 400
        assert server.complete(max_tokens=1).status_code == 200
