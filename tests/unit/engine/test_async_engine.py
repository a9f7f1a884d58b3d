"""Many coroutines, one engine: streams, refusals, cancellation, aborts."""

import asyncio
import random
import re

import pytest
from async_harness import PATIENCE_S, Gate, endless, last_of, last_output, run, spell, start_one, until
from engine_fakes import make_engine

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.lifecycle import EngineState
from octavo.errors import (
    ContextLengthError,
    InvalidRequestError,
    OctavoError,
)
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sched.pause import PauseMode


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


def test_an_unexpected_error_while_adding_fails_that_request_only(monkeypatch):
    async def scenario():
        fake = make_engine(spell("fine"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            with pytest.raises(InvalidRequestError, match="must be SamplingParams"):
                await last_of(engine.generate("x", None))
            monkeypatch.setattr(fake.engine, "add_request", lambda *_, **__: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                await last_output(engine)
            monkeypatch.undo()
            return await last_output(engine)

    assert run(scenario()).outputs[0].text == "fine"


def test_an_id_in_use_is_refused_and_the_first_request_lives_on():
    async def scenario():
        fake = make_engine(endless, max_model_len=100_000, num_blocks=30_000)
        async with AsyncEngine(lambda: fake.engine) as engine:
            stream, first = await start_one(engine, max_tokens=90_000)
            with pytest.raises(InvalidRequestError, match="'one' is in use"):
                await last_of(engine.generate("other", SamplingParams(), request_id="one"))
            second = await anext(stream)
            await stream.aclose()
            return len(second.outputs[0].token_ids) - len(first.outputs[0].token_ids)

    assert run(scenario()) > 0


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


def test_an_error_in_a_call_is_its_own(monkeypatch):
    async def scenario():
        fake = make_engine(spell("fine"))

        def fail(self, **options):
            raise ValueError("not today")

        monkeypatch.setattr(type(fake.engine), "reset_prefix_cache", fail)
        async with AsyncEngine(lambda: fake.engine) as engine:
            with pytest.raises(ValueError, match="not today"):
                await engine.reset_prefix_cache()
            return await last_output(engine)

    assert run(scenario()).outputs[0].text == "fine"


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
            for number, task in enumerate(rng.sample(tasks, 60)):
                if number >= 20:  # the first ones have not begun, others may have ended
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


def test_deltas_add_up_to_the_text_however_slow_the_reader_is():
    async def scenario():
        fake = make_engine(spell("abcdefghij"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            seen = []
            params = SamplingParams(max_tokens=50, output_kind=RequestOutputKind.DELTA)
            async for output in engine.generate("p", params):
                seen.append(output.outputs[0])
                await until(lambda: not fake.engine.has_unfinished_requests)
            return seen

    seen = run(scenario())
    assert len(seen) <= 2
    assert "".join(choice.text for choice in seen) == "abcdefghij"
    assert sum(len(choice.token_ids) for choice in seen) == 11


def test_final_only_is_one_output():
    async def scenario():
        fake = make_engine(spell("abcdefghij"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            params = SamplingParams(max_tokens=50, output_kind=RequestOutputKind.FINAL_ONLY)
            return [output async for output in engine.generate("p", params)]

    (output,) = run(scenario())
    assert (output.finished, output.outputs[0].text) == (True, "abcdefghij")


def test_made_up_ids_do_not_meet_those_of_clients():
    async def scenario():
        fake = make_engine(spell("x"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            return [(await last_output(engine)).request_id for _ in range(3)]

    names = run(scenario())
    assert len(set(names)) == 3
    assert all(re.fullmatch("request-[0-9a-f]{32}", name) for name in names)


@pytest.mark.parametrize("mode", list(PauseMode))
def test_a_pause_holds_requests_back_without_a_step(mode):
    async def scenario():
        fake = make_engine(spell("done"))
        async with AsyncEngine(lambda: fake.engine) as engine:
            await engine.pause(mode)
            task = asyncio.create_task(last_output(engine))
            await until(lambda: fake.engine.has_unfinished_requests)
            steps = []
            monkeypatch = pytest.MonkeyPatch()
            monkeypatch.setattr(fake.engine, "step", lambda: steps.append(1) or [])
            for _ in range(5):
                await engine.reset_prefix_cache()  # wakes the thread, which finds nothing to do
            monkeypatch.undo()
            await engine.resume()
            return await task, steps

    output, steps = run(scenario())
    assert (output.outputs[0].text, steps) == ("done", [])


def test_a_shutdown_ends_a_pause():
    async def scenario():
        fake = make_engine(spell("done"))
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        await engine.pause(PauseMode.ALL)
        task = asyncio.create_task(last_output(engine))
        await until(lambda: fake.engine.has_unfinished_requests)
        await engine.shutdown(drain_s=PATIENCE_S)
        return await task

    assert run(scenario()).outputs[0].text == "done"
