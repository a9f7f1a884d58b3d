"""The load of the HTTP benchmarks, and the client that sends it."""

import asyncio
import statistics

import pytest
from async_harness import run, spell
from load import LoadError, LoadProcess, Mix, closed_load, poisson_load
from open_loop import summarize, table
from server_harness import MODEL, serving
from stream_client import ServerError, StreamClient

MIX = Mix(prompt_tokens=10, output_tokens=4, shared_tokens=6, shared_share=0.5)


def test_arrivals_are_random_at_the_rate_asked_for_and_the_same_for_every_server():
    load = poisson_load(MIX, rate=5.0, num_requests=4000, seed=3)
    gaps = [after - before for before, after in zip([0.0, *load.offsets], load.offsets, strict=False)]
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.1)
    assert load == poisson_load(MIX, rate=5.0, num_requests=4000, seed=3)
    assert load.prompts != poisson_load(MIX, rate=5.0, num_requests=4000, seed=4).prompts


def test_half_of_the_prompts_begin_alike():
    load = poisson_load(MIX, rate=5.0, num_requests=1000, seed=3)
    long = [prompt for prompt in load.prompts if len(prompt) == 16]
    assert 400 < len(long) < 600
    assert len({tuple(prompt[:6]) for prompt in long}) == 1
    assert len({tuple(prompt[-10:]) for prompt in load.prompts}) == 1000


def test_a_closed_load_comes_all_at_once():
    load = closed_load(3, 10, 4, seed=1)
    assert (load.offsets, [len(prompt) for prompt in load.prompts]) == ([0.0] * 3, [10] * 3)


def test_the_client_sees_every_token_of_a_stream_and_what_was_cached():
    with serving(spell("abcdefgh")) as server:
        client = StreamClient(server.url, MODEL.name)
        prompt = list(range(65, 85))
        cold, warm = (run(client.complete(prompt, 4, due_at=0.0)) for _ in range(2))
    assert (cold.num_tokens, cold.num_cached_tokens, warm.num_cached_tokens) == (4, 0, 16)
    assert 1 <= len(cold.part_times) <= 5
    assert cold.part_times == sorted(cold.part_times)
    assert cold.first > 0


def test_an_error_is_an_error_and_not_a_fast_answer():
    with serving(spell("abc")) as server:
        with pytest.raises(ServerError, match="no model 'other'"):
            run(StreamClient(server.url, "other").complete([65], 4, due_at=0.0))

        async def too_long():
            await StreamClient(server.url, MODEL.name).complete([65] * 300, 4, due_at=0.0)

        with pytest.raises(ServerError, match="context_length_exceeded"):
            asyncio.run(too_long())


def test_the_load_generator_is_a_process_that_survives_a_failed_job():
    class Address:
        name = "nobody"
        url = "http://127.0.0.1:9"
        model = "m"

    with serving(spell("abcdefgh")) as server, LoadProcess() as generator:
        with pytest.raises(LoadError, match="nobody: ConnectionRefusedError"):
            generator.run(Address, closed_load(2, 5, 4, seed=1))
        Address.url, Address.model = server.url, MODEL.name
        load = closed_load(2, 5, 4, seed=1)._replace(prompts=[[65, 66], [67, 68]])
        answer = generator.run(Address, load)
    assert (answer["tokens"], len(answer["first"]), answer["cached"]) == (8, 2, [0, 0])
    assert answer["client_cpu"] > 0


def record(server, first, gaps, *, clean):
    made = {"server": server, "first": first, "gaps": gaps, "clean": clean}
    return made | summarize(made)


def test_the_table_uses_clean_runs_as_long_as_there_is_one():
    text = table(
        [
            record("a", [0.1, 0.2], [0.01], clean=True),
            record("a", [9.0, 9.0], [9.0], clean=False),
            record("b", [0.5], [0.05], clean=False),
        ]
    )
    assert text.splitlines()[2:] == [
        "| a | 100 | 200 | 10.0 | 10.0 | 1 |",
        "| b | 500 | 500 | 50.0 | 50.0 | 1, not clean |",
    ]
