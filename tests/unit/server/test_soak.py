"""Many clients at once over a real model, some of them rude: no 5xx, no leak, a canary never changes."""

import asyncio
import json
import random
import threading

import httpx
from async_harness import PATIENCE_S
from server_harness import wait_until

NUM_CLIENTS = 16
NUM_REQUESTS = 6
CANARY = {
    "prompt": "the cat",
    "max_tokens": 8,
    "temperature": 1.0,
    "seed": 11,
    "logprobs": 3,
    "ignore_eos": True,
}


async def leave_in_the_middle(client, chance):
    body = {"prompt": "a" * chance.randint(1, 60), "max_tokens": 200, "stream": True, "ignore_eos": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        num_lines = 0
        async for _ in response.aiter_lines():
            num_lines += 1
            if num_lines > chance.randint(0, 12):
                break
    return response.status_code


async def give_up_waiting(client, chance):
    body = {
        "prompt": "b" * chance.randint(1, 60),
        "max_tokens": 400,
        "n": chance.randint(1, 4),
        "ignore_eos": True,
    }
    try:
        response = await client.post("/v1/completions", json=body, timeout=chance.random() * 0.1 + 0.01)
    except httpx.TimeoutException:
        return 499
    return response.status_code


async def ask_for_nonsense(client, chance):
    body = chance.choice(
        [
            {"prompt": "x" * 5000},
            {"prompt": "x" * 50_000},
            {"prompt": "x", "temperature": -1},
            {"prompt": [10**9]},
            {"prompt": "x", "model": "no such model"},
            {"wrong": True},
        ]
    )
    response = await client.post("/v1/completions", json=body)
    assert 400 <= response.status_code < 500, response.text
    return response.status_code


async def finish(client, chance):
    messages = [{"role": "user", "content": "the cat " * chance.randint(1, 20)}]
    body = {"messages": messages, "max_tokens": chance.randint(1, 20), "stream": True}
    response = await client.post("/v1/chat/completions", json=body)
    assert response.text.endswith("data: [DONE]\n\n")
    return response.status_code


async def sing(client, _chance):
    response = await client.post("/v1/completions", json=CANARY)
    choice = response.json()["choices"][0]
    return json.dumps([choice["text"], choice["logprobs"]])


async def one_client(url, number, seen):
    chance = random.Random(number)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        for _ in range(NUM_REQUESTS):
            act = chance.choice([leave_in_the_middle, give_up_waiting, ask_for_nonsense, finish, sing])
            seen.append((act, await act(client, chance)))


def test_rude_clients_hurt_nobody(tiny_server):
    url, engine, built = tiny_server
    seen = []

    async def main():
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            seen.append((sing, await sing(client, None)))
        await asyncio.gather(*(one_client(url, number, seen) for number in range(NUM_CLIENTS)))

    asyncio.run(main())
    songs = {result for act, result in seen if act is sing}
    assert len(songs) == 1, "a seed gives the same bits whatever else runs"
    assert all(result < 500 for act, result in seen if act is not sing)
    assert {act for act, _ in seen} == {leave_in_the_middle, give_up_waiting, ask_for_nonsense, finish, sing}
    wait_until(lambda: not built.engine.has_unfinished_requests and not engine.num_unfinished_requests)
    assert built.kv.num_free_blocks == built.kv.num_blocks
    assert threading.active_count() < 40
