"""Constraints in the engine: who waits for a grammar, who does not, and whose request a bad one ends."""

import asyncio

import pytest
from async_harness import endless, last_of, run, spell, until
from engine_fakes import FakeGrammars, make_engine, run_to_end

from octavo.engine.async_engine import AsyncEngine
from octavo.errors import EngineDeadError, InvalidRequestError, UnsupportedFeatureError
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams

SHAPE = StructuredOutputsParams(json_object=True)
SHAPED = SamplingParams(max_tokens=5, structured_outputs=SHAPE)
FREE = SamplingParams(max_tokens=5)


@pytest.fixture
def grammars():
    return FakeGrammars()


@pytest.fixture
def fake(grammars):
    return make_engine(endless, grammars=grammars)


def test_a_request_waits_for_its_grammar_and_holds_nobody_up(fake, grammars):
    fake.engine.add_request("shaped", [1, 2], SHAPED)
    assert not fake.engine.has_work
    assert fake.engine.patience_s > 0
    assert fake.engine.step() == []
    fake.engine.add_request("free", [1, 2], FREE)
    for _ in range(6):
        outputs = fake.engine.step()
        assert {output.request_id for output in outputs} <= {"free"}
    assert (fake.engine.has_unfinished_requests, fake.engine.has_work) == (True, False)
    assert (fake.scheduler.num_waiting, fake.scheduler.num_held_back) == (1, 1)
    grammars.futures[SHAPE].set_result(None)
    assert fake.engine.has_work
    assert len(run_to_end(fake.engine)["shaped"].outputs[0].token_ids) == 5
    assert fake.engine.patience_s is None


def test_waiting_for_a_grammar_for_long_is_no_deadlock(fake, grammars):
    fake.engine.add_request("shaped", [1, 2], SHAPED)
    for _ in range(50):
        assert fake.engine.step() == []
    grammars.futures[SHAPE].set_result(None)
    assert run_to_end(fake.engine)["shaped"].finished


@pytest.mark.parametrize("n", [1, 3])
def test_a_bad_grammar_ends_its_request_alone(fake, grammars, n):
    fake.engine.add_request("bad", [1, 2], SHAPED.clone(n=n))
    fake.engine.add_request("good", [1, 2], FREE)
    fake.engine.step()
    error = InvalidRequestError("no grammar", param="structured_outputs")
    grammars.futures[SHAPE].set_exception(error)
    outputs = {output.request_id: output for output in fake.engine.step()}
    assert outputs["bad"].refusal is error
    assert outputs["bad"].finished
    assert [choice.finish_reason for choice in outputs["bad"].outputs] == ["error"] * n
    finished = run_to_end(fake.engine)
    assert set(finished) == {"good"}
    assert finished["good"].refusal is None
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_a_request_can_be_aborted_while_its_grammar_is_compiled(fake, grammars):
    fake.engine.add_request("shaped", [1, 2], SHAPED.clone(n=2))
    fake.engine.abort("shaped")
    assert not fake.engine.has_unfinished_requests
    grammars.futures[SHAPE].set_exception(InvalidRequestError("too late"))
    assert fake.engine.step() == []


def test_the_queue_is_bounded_for_those_who_wait_for_a_grammar_too():
    from octavo.errors import QueueFullError

    fake = make_engine(endless, grammars=FakeGrammars(), max_waiting_requests=2)
    fake.engine.add_request("a", [1, 2], SHAPED)
    fake.engine.add_request("b", [1, 2], SHAPED)
    with pytest.raises(QueueFullError):
        fake.engine.add_request("c", [1, 2], FREE)


def test_an_engine_without_a_compiler_says_so():
    fake = make_engine(endless)
    with pytest.raises(UnsupportedFeatureError, match="structured_outputs"):
        fake.engine.add_request("a", [1, 2], SHAPED)
    assert not fake.engine.has_unfinished_requests


def test_closing_the_engine_closes_the_compiler(fake, grammars):
    fake.engine.close()
    assert grammars.is_closed


def test_an_engine_that_dies_closes_the_compiler_too(grammars):
    async def scenario():
        fake = make_engine(endless, grammars=grammars, runner_options={"failing_steps": range(9)})
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        with pytest.raises(EngineDeadError):
            await last_of(engine.generate("p", FREE))
        await until(lambda: grammars.is_closed and fake.runner.is_closed)

    run(scenario())


def test_a_stream_begins_when_its_grammar_is_ready_or_ends_with_its_error(grammars):
    bad = StructuredOutputsParams(regex="(")

    async def scenario():
        fake = make_engine(spell("{}"), grammars=grammars)
        async with AsyncEngine(lambda: fake.engine) as engine:
            good = asyncio.create_task(last_of(engine.generate("p", SHAPED)))
            refused = asyncio.create_task(last_of(engine.generate("p", FREE.clone(structured_outputs=bad))))
            await until(lambda: len(grammars.futures) == 2)
            assert (await last_of(engine.generate("p", FREE))).outputs[0].text == "{}"
            grammars.futures[bad].set_exception(InvalidRequestError("no regular expression"))
            with pytest.raises(InvalidRequestError, match="no regular expression"):
                await refused
            assert not good.done()
            grammars.futures[SHAPE].set_result(None)
            assert (await good).outputs[0].text == "{}"
            assert engine.num_unfinished_requests == 0

    run(scenario())


def test_draining_waits_for_grammars_until_its_deadline(grammars):
    async def scenario():
        fake = make_engine(spell("{}"), grammars=grammars)
        engine = AsyncEngine(lambda: fake.engine)
        engine.start()
        stream = asyncio.create_task(last_of(engine.generate("p", SHAPED)))
        await until(lambda: grammars.futures)
        await engine.shutdown(drain_s=0.05)
        return await stream

    assert run(scenario()).outputs[0].finish_reason == "abort"
