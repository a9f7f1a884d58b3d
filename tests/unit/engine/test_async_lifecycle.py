"""The life of an engine in its thread: starting, draining, stopping, dying. Nobody waits for ever."""

import asyncio
import threading

import pytest
from async_harness import (
    PATIENCE_S,
    Gate,
    LateGate,
    endless,
    last_of,
    last_output,
    run,
    spell,
    start_one,
    until,
)
from engine_fakes import make_engine

from octavo.engine.abort_cause import AbortCause
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.lifecycle import EngineState
from octavo.errors import (
    ConfigError,
    DrainingError,
    EngineDeadError,
    EngineError,
    InvariantError,
)


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
        fake = make_engine(gate, runner_options={"failing_steps": [2, 3, 4]})
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
        await until(lambda: fake.runner.is_closed)
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


def test_nobody_waits_for_an_engine_that_was_not_started():
    async def scenario():
        engine = AsyncEngine(lambda: make_engine(spell("ready")).engine)
        for call in (last_output(engine), engine.pause(), engine.reset_prefix_cache()):
            with pytest.raises(EngineError, match=r"was not started; call start\(\) first"):
                await call
        engine.start()
        output = await last_output(engine)
        await engine.shutdown()
        return output

    assert run(scenario()).outputs[0].text == "ready"


def test_starting_twice_is_starting_once():
    async def scenario():
        engine = AsyncEngine(lambda: make_engine(spell("ready")).engine)
        engine.start()
        engine.start()
        async with engine:
            output = await last_output(engine)
        with pytest.raises(EngineDeadError, match="has stopped"):
            engine.start()
        return output

    assert run(scenario()).outputs[0].text == "ready"


def test_a_death_without_words_is_named():
    def interrupted():
        raise KeyboardInterrupt

    async def scenario():
        engine = AsyncEngine(interrupted)
        engine.start()
        with pytest.raises(EngineDeadError, match="the engine is dead: KeyboardInterrupt"):
            await engine.wait_until_ready()

    run(scenario())


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


@pytest.mark.parametrize("method", ["add_request", "reset_prefix_cache"])
def test_a_broken_invariant_is_the_end_wherever_it_shows(method, monkeypatch):
    async def scenario():
        fake = make_engine(endless)

        def fail(self, *args, **kwargs):
            raise InvariantError("two owners of block 7")

        monkeypatch.setattr(type(fake.engine), method, fail)
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        await engine.wait_until_ready()
        victim = last_output(engine) if method == "add_request" else engine.reset_prefix_cache()
        with pytest.raises(EngineDeadError, match="two owners of block 7"):
            await victim
        assert isinstance(engine.cause_of_death, InvariantError)
        return engine.state

    assert run(scenario()) is EngineState.DEAD


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (lambda engine, stream: stream.aclose(), AbortCause.CLIENT_GONE),
        (lambda engine, stream: engine.abort("one"), AbortCause.REQUESTED),
        (lambda engine, stream: engine.abort("one", AbortCause.TIMEOUT), AbortCause.TIMEOUT),
        (lambda engine, stream: engine.shutdown(drain_s=0.0), AbortCause.SHUTDOWN),
    ],
    ids=["a reader that leaves", "abort", "abort with a cause", "the end of draining"],
)
def test_why_a_request_was_ended_early_is_told(end, cause):
    finished = []

    async def scenario():
        gate = LateGate()
        engine = AsyncEngine(lambda: make_engine(gate).engine, on_finished=finished.append)
        async with engine:
            stream, _ = await start_one(engine)
            await until(gate.entered.is_set)  # it cannot end by itself now
            ending = asyncio.ensure_future(end(engine, stream))
            await asyncio.sleep(0.02)
            gate.opened.set()
            await ending
            await until(lambda: finished and engine.snapshot.aborted)  # published after it is told
            await stream.aclose()
        assert engine.snapshot.aborted == {cause.value: 1}
        assert engine.snapshot.blocks.num_active == 0

    run(scenario())
    assert [(record.request_id, record.abort_cause) for record in finished] == [("one", cause)]


def test_the_death_of_an_engine_is_the_cause_of_its_requests_end():
    finished = []

    async def scenario():
        engine = AsyncEngine(
            lambda: make_engine(endless, runner_options={"failing_steps": [2, 3, 4]}).engine,
            on_finished=finished.append,
        )
        engine.start()
        with pytest.raises(EngineDeadError):
            await last_output(engine, max_tokens=50)
        await until(lambda: engine.snapshot.aborted)

    run(scenario())
    assert [record.abort_cause for record in finished] == [AbortCause.ENGINE_DEAD]
