"""What can be seen of a server from outside: metrics, health, ids, log lines and the access trace."""

import asyncio
import json
import logging
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from async_harness import Gate, endless, run, spell, until
from engine_fakes import ByteTokenizer, make_engine
from prometheus_client.parser import text_string_to_metric_families
from server_harness import MODEL, SERVED_ENGINE, serving

from octavo.cli.trace_replay import read_trace, replay_trace
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import create_app
from octavo.server.config import ServerConfig
from octavo.server.lifecycle import serve
from octavo.server.request_log import RequestLog
from octavo.server.systemd import ServiceManager
from octavo.server.telemetry import ServerTelemetry

PROMPT = list(range(65, 85))


def scrape(server):
    """Sample and label values, but for the model's, to number."""
    response = server.client.get("/metrics")
    assert response.status_code == 200
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name != "model_name")): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def wait_for(condition):
    """Wait for something that another thread does."""
    run(until(condition))


def ended(caplog):
    """The fields of the log lines about requests that have ended."""
    return [record.fields for record in caplog.records if record.getMessage() == "request ended"]


def test_a_scrape_counts_what_was_served():
    with serving(spell("Hello!")) as server:
        for _ in range(2):
            assert server.complete(PROMPT, max_tokens=20).status_code == 200
        server.until_idle()
        samples = scrape(server)
    assert samples["vllm:prompt_tokens_total",] == 40
    assert samples["vllm:prompt_tokens_cached_total",] == 16
    assert samples["vllm:generation_tokens_total",] == 14
    assert samples["vllm:request_success_total", "stop"] == 2
    assert samples["vllm:time_to_first_token_seconds_count",] == 2
    assert samples["vllm:num_requests_running",] == 0
    assert samples["octavo:http_requests_total", "POST", "/v1/completions", "200"] == 2
    assert samples["octavo:engine_state", "ready"] == 1


def test_a_scrape_needs_no_key():
    with serving(spell("x"), config=ServerConfig(api_key=("secret",))) as server:
        assert server.complete().status_code == 401
        assert scrape(server)["octavo:engine_state", "ready"] == 1


def test_refusals_are_counted_by_reason():
    with serving(spell("x"), config=ServerConfig(api_key=("secret",), max_body_bytes=300)) as server:
        headers = {"Authorization": "Bearer secret"}
        server.complete()
        server.client.get("/nowhere", headers=headers)
        server.client.post("/v1/completions", json={"prompt": ""}, headers=headers)
        server.client.post("/v1/completions", json={"prompt": "x" * 400}, headers=headers)
        samples = scrape(server)
    refused = {key[1]: value for key, value in samples.items() if key[0] == "octavo:requests_refused_total"}
    assert refused == {
        "invalid_api_key": 1,
        "not_found": 1,
        "invalid_value": 1,
        "request_too_large": 1,
    }
    assert samples["octavo:http_requests_total", "POST", "unmatched", "401"] == 1
    assert samples["octavo:http_requests_total", "POST", "/v1/completions", "400"] == 1


def test_a_client_may_choose_the_id_of_its_request(caplog):
    with caplog.at_level(logging.INFO, "octavo.server.request_log"), serving(spell("x")) as server:
        given = server.client.post(
            "/v1/completions", json={"prompt": "a"}, headers={"X-Request-Id": "mine/1"}
        )
        own = server.complete("b")
        refused = server.client.get("/nowhere")
        server.until_idle()
    assert given.headers["x-request-id"] == "mine/1"
    assert own.headers["x-request-id"] == own.json()["id"]
    assert refused.headers["x-request-id"]
    assert [line["request_id"] for line in ended(caplog)] == ["mine/1", f"{own.json()['id']}-0"]
    assert ended(caplog)[0]["id"] == f"{given.json()['id']}-0"


@pytest.mark.parametrize("given", ["", "x" * 129, "caf\u00e9".encode(), "a\tb"])
def test_an_id_that_cannot_be_shown_is_replaced(given):
    with serving(spell("x")) as server:
        response = server.client.get("/health", headers={"X-Request-Id": given})
        assert response.status_code == 200
        assert len(response.headers["x-request-id"]) == 32


def test_a_line_per_request_with_its_cause(caplog):
    def unhurried(request_id, position):
        time.sleep(0.01)
        return endless(request_id, position)

    with caplog.at_level(logging.INFO, "octavo.server.request_log"), serving(unhurried) as server:
        server.complete(PROMPT, max_tokens=3)
        with server.client.stream(
            "POST", "/v1/completions", json={"prompt": PROMPT, "max_tokens": 150, "stream": True}
        ) as response:
            next(response.iter_lines())
        server.until_idle()
        wait_for(lambda: len(ended(caplog)) == 2)
        aborted = scrape(server)["octavo:requests_aborted_total", "client_gone"]
    finished, gone = ended(caplog)
    assert (finished["cause"], finished["output_tokens"], finished["prompt_tokens"]) == ("length", 3, 20)
    assert 0 <= finished["queue_s"] <= finished["first_token_s"] <= finished["total_s"]
    assert (gone["cause"], gone["cached_tokens"]) == ("client_gone", 16)
    assert aborted == 1


def test_health_tells_of_a_stall():
    gate = Gate()
    with serving(gate, config=ServerConfig(stall_timeout=0.02), clock=time.monotonic) as server:
        assert server.client.get("/health").json() == {"status": "ready", "stall": None}
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(
                httpx.post, f"{server.url}/v1/completions", json={"prompt": "x"}, timeout=60
            )

            def stall():
                return server.client.get("/health").json()["stall"]

            wait_for(lambda: (stall() or {}).get("reason") == "step_hangs")
            samples = scrape(server)
            gate.opened.set()
            assert hanging.result().status_code == 200
        assert samples["octavo:engine_stalled", "step_hangs"] == 1
        wait_for(lambda: stall() is None)


def test_the_access_trace_replays_to_the_hits_that_were_served(tmp_path):
    path = tmp_path / "trace.jsonl"
    with serving(spell("x"), config=ServerConfig(access_trace=str(path))) as server:
        served = [
            server.complete(prompt, max_tokens=4).json()["usage"]
            for prompt in (PROMPT, PROMPT[:9], [1, *PROMPT], PROMPT, PROMPT[:8])
        ]
    rows = read_trace(path, default_block_size=1)
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in served]
    assert [row.num_cached_tokens for row in rows] == cached == [0, 8, 0, 16, 4]
    assert replay_trace(rows, 64).num_hit_tokens == sum(cached)
    assert {json.loads(line)["block_size"] for line in path.read_text().splitlines()} == {4}


def test_a_service_manager_hears_of_start_life_and_stop(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        listener.bind(str(tmp_path / "notify"))
        heard = []

        async def hear(message):
            while message not in heard:
                heard.append(await asyncio.get_running_loop().sock_recv(listener, 1000))

        async def scenario():
            manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000"})
            async with AsyncEngine(lambda: make_engine(spell("x")).engine) as engine:
                telemetry = ServerTelemetry(engine, SERVED_ENGINE, RequestLog([]))
                app = create_app(
                    engine, ByteTokenizer(), model=MODEL, config=ServerConfig(), telemetry=telemetry
                )
                bound = socket.socket()
                bound.bind(("127.0.0.1", 0))
                serving_task = asyncio.create_task(serve(app, bound, on_ready=lambda: None, manager=manager))
                await hear(b"WATCHDOG=1")
                os.kill(os.getpid(), signal.SIGTERM)
                await hear(b"STOPPING=1")
                await serving_task

        run(scenario())
    assert heard[0] == b"READY=1"
