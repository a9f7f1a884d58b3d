"""Many coroutines, one engine: streams, cancellation, draining, death. Nobody waits for ever."""

import asyncio
import random
import threading
import time

import pytest
from engine_fakes import EOS, make_engine

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.lifecycle import EngineState
from octavo.errors import (
    ConfigError,
    ContextLengthError,
    DrainingError,
    EngineDeadError,
    InvalidRequestError,
    OctavoError,
)
from octavo.sampling_params import SamplingParams

PATIENCE_S = 60.0
"""When a wait counts as a hang. Nothing here takes a hundredth of it."""


def run(coroutine):
    """Run a test's coroutine; a hang is a failure."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


def spell(text):
    tokens = [*text.encode(), EOS]
    return lambda request_id, position: tokens[min(position, len(tokens) - 1)]


def endless(request_id, position):
    return ord("a") + position % 26


class Gate:
    """A script that waits in the middle of a step until it is opened."""

    def __init__(self):
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, request_id, position):
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        return ord("x")


async def last_of(stream):
    return [output async for output in stream][-1]


async def last_output(engine, prompt="a prompt", **params):
    return await last_of(engine.generate(prompt, SamplingParams(**params)))


async def until(condition):
    """Wait for something that another thread does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.001)


async def start_one(engine, **params):
    """A stream that has begun, and a first output of it."""
    stream = engine.generate("a prompt", SamplingParams(**{"max_tokens": 150, **params}), request_id="one")
    return stream, await anext(stream)


def test_a_stream_ends_with_the_whole_text():
    async def scenario():
        fake = make_engine(spell("Hello there"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            assert engine.state is EngineState.READY
            output = await last_output(engine, max_tokens=50)
        assert engine.state is EngineState.STOPPED
        return output

    output = run(scenario())
    assert (output.outputs[0].text, output.prompt) == ("Hello there", "a prompt")


def test_a_slow_reader_misses_steps_and_no_text():
    async def scenario():
        fake = make_engine(spell("abcdefghij"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            seen = []
            async for output in engine.generate("p", SamplingParams(max_tokens=50)):
                seen.append(output.outputs[0].text)
                await until(lambda: not fake.engine.has_unfinished_requests)
            return seen

    seen = run(scenario())
    assert len(seen) <= 2
    assert seen[-1] == "abcdefghij"


@pytest.mark.parametrize(
    ("prompt", "options", "error"),
    [
        ([1, 2], {}, InvalidRequestError),
        ({"prompt_token_ids": [10_000]}, {}, InvalidRequestError),
        ("x" * 300, {}, ContextLengthError),
        ("", {}, InvalidRequestError),
        ("fine", {"request_id": []}, InvalidRequestError),
        ("fine", {"priority": "high"}, InvalidRequestError),
    ],
)
def test_a_refused_request_raises_in_its_own_stream_only(prompt, options, error):
    async def scenario():
        fake = make_engine(spell("fine"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            with pytest.raises(error):
                await last_of(engine.generate(prompt, SamplingParams(), **options))
            return await last_output(engine)

    assert run(scenario()).outputs[0].text == "fine"


def test_an_unexpected_error_while_adding_fails_that_request_only():
    async def scenario():
        fake = make_engine(spell("fine"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            with pytest.raises(AttributeError):
                await last_of(engine.generate("x", None))
            return await last_output(engine)

    assert run(scenario()).outputs[0].text == "fine"


def test_an_id_in_use_is_refused_and_the_first_request_lives_on():
    async def scenario():
        fake = make_engine(endless)
        async with AsyncEngine(lambda: fake.engine) as engine:
            stream, _ = await start_one(engine)
            with pytest.raises(InvalidRequestError, match="'one' is in use"):
                await last_of(engine.generate("other", SamplingParams(), request_id="one"))
            return await last_of(stream)

    assert run(scenario()).outputs[0].finish_reason == "length"


def test_leaving_the_loop_aborts_within_a_step():
    async def scenario():
        fake = make_engine(endless, max_model_len=100_000, num_blocks=30_000)
        async with AsyncEngine(lambda: fake.engine) as engine:
            stream, _ = await start_one(engine, max_tokens=90_000)
            await stream.aclose()
            await until(lambda: fake.kv.num_free_blocks == fake.kv.num_blocks)
            assert engine.num_unfinished_requests == 0
            return await last_output(engine, max_tokens=3)

    assert run(scenario()).outputs[0].text == "abc"


def test_cancelling_the_task_aborts_within_a_step():
    async def scenario():
        gate = Gate()
        fake = make_engine(gate)
        async with AsyncEngine(lambda: fake.engine) as engine:
            task = asyncio.create_task(last_output(engine, max_tokens=150))
            await until(gate.entered.is_set)  # the request is in the middle of a step
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.opened.set()
            await until(lambda: fake.kv.num_free_blocks == fake.kv.num_blocks)
            return fake.runner.num_submitted

    assert run(scenario()) <= 2


def test_abort_by_id_ends_the_stream_with_what_there_was():
    async def scenario():
        fake = make_engine(endless, max_model_len=100_000, num_blocks=30_000)
        async with AsyncEngine(lambda: fake.engine) as engine:
            stream, first = await start_one(engine, max_tokens=90_000)
            await engine.abort("nobody")
            await engine.abort("one")
            output = await last_of(stream)
            assert output.outputs[0].text.startswith(first.outputs[0].text)
            return output

    assert run(scenario()).outputs[0].finish_reason == "abort"


def test_aborting_a_finished_request_does_not_hit_the_next_one_of_its_name():
    async def scenario():
        fake = make_engine(spell("short"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            outputs = []
            for _ in range(20):
                output = await last_of(engine.generate("p", SamplingParams(), request_id="again"))
                outputs.append(output.outputs[0].text)
            return outputs

    assert run(scenario()) == ["short"] * 20


def test_draining_finishes_what_is_under_way_and_refuses_the_rest():
    async def scenario():
        gate = Gate()
        fake = make_engine(gate)
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        await engine.wait_until_ready()
        task = asyncio.create_task(last_output(engine, max_tokens=30))
        await until(gate.entered.is_set)
        shutdown = asyncio.create_task(engine.shutdown(drain_s=PATIENCE_S))
        await until(lambda: engine.state is EngineState.DRAINING)
        with pytest.raises(DrainingError):
            await last_output(engine)
        gate.opened.set()
        output = await task
        await shutdown
        assert engine.state is EngineState.STOPPED
        assert fake.runner.is_closed
        with pytest.raises(EngineDeadError, match="has stopped"):
            await last_output(engine)
        await engine.shutdown()  # again: nothing happens
        return output

    assert run(scenario()).outputs[0].text == "x" * 30


def test_the_deadline_of_a_drain_aborts_what_is_left():
    async def scenario():
        fake = make_engine(endless, max_model_len=100_000, num_blocks=30_000)
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        await engine.wait_until_ready()
        stream, _ = await start_one(engine, max_tokens=90_000)
        await engine.shutdown(drain_s=0.0)
        output = await last_of(stream)
        assert fake.kv.num_free_blocks == fake.kv.num_blocks
        return output

    assert run(scenario()).outputs[0].finish_reason == "abort"


def test_a_dead_engine_ends_every_stream_and_refuses_new_ones():
    async def scenario():
        gate = Gate()
        fake = make_engine(gate, runner_options={"failing_steps": [2, 3]})
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        await engine.wait_until_ready()
        tasks = [asyncio.create_task(last_output(engine, f"prompt {i}")) for i in range(20)]
        await until(lambda: engine.num_unfinished_requests == 20)
        reset = asyncio.create_task(engine.reset_prefix_cache())
        gate.opened.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(reset, return_exceptions=True)
        assert engine.state is EngineState.DEAD
        assert isinstance(engine.cause_of_death, EngineDeadError)
        for later in (last_output(engine), engine.wait_until_ready(), engine.reset_prefix_cache()):
            with pytest.raises(EngineDeadError):
                await later
        return results

    results = run(scenario())
    assert len(results) == 20
    assert all(isinstance(result, EngineDeadError) for result in results)


def test_an_engine_that_cannot_be_built_is_dead_with_the_cause():
    def build():
        raise ConfigError("block_size must be a positive multiple of 8, got 7")

    async def scenario():
        engine = AsyncEngine(build)
        engine.start()
        waiting = asyncio.create_task(last_output(engine))
        with pytest.raises(EngineDeadError, match="got 7") as caught:
            await engine.wait_until_ready()
        assert isinstance(caught.value.__cause__, ConfigError)
        with pytest.raises(EngineDeadError):
            await waiting
        assert engine.state is EngineState.DEAD

    run(scenario())


def test_requests_wait_for_an_engine_that_is_starting():
    may_build = threading.Event()

    def build():
        assert may_build.wait(PATIENCE_S)
        return make_engine(spell("ready")).engine

    async def scenario():
        engine = AsyncEngine(build)
        assert engine.state is EngineState.STARTING
        engine.start()
        task = asyncio.create_task(last_output(engine))
        await asyncio.sleep(0)
        may_build.set()
        output = await task
        await engine.shutdown()
        return output

    assert run(scenario()).outputs[0].text == "ready"


def test_an_engine_that_never_started_can_be_shut_down():
    async def scenario():
        engine = AsyncEngine(lambda: make_engine(endless).engine)
        await engine.shutdown(drain_s=0.0)
        with pytest.raises(EngineDeadError):
            await last_output(engine)
        return engine.state

    assert run(scenario()) is EngineState.STOPPED


def test_an_engine_that_hangs_is_given_up_and_its_streams_end(monkeypatch):
    monkeypatch.setattr("octavo.engine.async_engine.EXIT_GRACE_S", 0.05)

    async def scenario():
        gate = Gate()
        fake = make_engine(gate)
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        await engine.wait_until_ready()
        task = asyncio.create_task(last_output(engine))
        await until(gate.entered.is_set)
        with pytest.raises(EngineDeadError, match="did not stop within"):
            await engine.shutdown(drain_s=0.0)
        with pytest.raises(EngineDeadError):
            await task
        gate.opened.set()
        return engine.state

    assert run(scenario()) is EngineState.DEAD


def test_the_prefix_cache_is_reset_between_steps():
    async def scenario():
        fake = make_engine(spell("x"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            prompt = "a prompt of more than one block"
            await last_output(engine, prompt)
            warm = await last_output(engine, prompt)
            assert await engine.reset_prefix_cache() is True
            cold = await last_output(engine, prompt)
            return warm.num_cached_tokens, cold.num_cached_tokens

    assert run(scenario()) == (28, 0)


def test_two_hundred_streams_with_random_cancellation_leave_every_block_free():
    rng = random.Random(8)

    async def client(engine, i):
        params = SamplingParams(max_tokens=rng.randint(1, 60), n=rng.choice([1, 1, 1, 2]), stop=["xyz"])
        prompt = "shared prefix " * rng.randint(0, 3) + str(i)
        outputs_left = rng.choice([1, 2, 5, None])
        async for output in engine.generate(prompt, params):
            if output.finished:
                return "finished"
            if outputs_left is not None:
                outputs_left -= 1
                if outputs_left == 0:
                    return "left"
        return "ended"

    async def scenario():
        fake = make_engine(endless, num_blocks=40, max_model_len=120, max_num_seqs=16)
        async with AsyncEngine(lambda: fake.engine) as engine:
            tasks = [asyncio.create_task(client(engine, i)) for i in range(200)]
            for task in rng.sample(tasks, 60):
                await asyncio.sleep(0)
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await until(lambda: not fake.engine.has_unfinished_requests)
            assert fake.kv.num_free_blocks == fake.kv.num_blocks
            assert engine.num_unfinished_requests == 0
            assert (await last_output(engine, max_tokens=3)).outputs[0].text == "abc"
        return results

    results = run(scenario())
    assert len(results) == 200
    assert not [r for r in results if isinstance(r, OctavoError | AssertionError)]
    assert results.count("finished") >= 20
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) >= 20
