"""A request that makes steps fail fails alone; a runner that computes nothing ends the engine."""

import asyncio

import pytest
from async_harness import last_of, run, spell
from engine_fakes import make_engine, run_to_end

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.lifecycle import EngineState
from octavo.engine.probe import PROBE_ID
from octavo.errors import EngineDeadError
from octavo.sampling_params import SamplingParams
from octavo.sched.output import SchedulerOutput

NAMES = "abcdefgh"
NUM_PROMPT_TOKENS = 20


def prompt_of(name):
    """They begin with the same three blocks."""
    return [*range(10, 22), ord(name[0]), *range(60, 67)]


def alphabet(request_id, position):
    """Token number i is the letter i, so that a lost or repeated token shows."""
    return ord("a") + position


def end_of(scheduled):
    return scheduled.num_computed_tokens + scheduled.num_scheduled_tokens


def make(fails, **options):
    return make_engine(alphabet, runner_options={"fails": fails}, **options)


def add(fake, names=NAMES, **params):
    for name in names:
        fake.engine.add_request(name, prompt_of(name), SamplingParams(**{"max_tokens": 9, **params}))


def check_served(outputs, names):
    assert {name: outputs[name].outputs[0].text for name in names} == dict.fromkeys(names, "abcdefghi")
    assert all(outputs[name].outputs[0].error is None for name in names)


def check_blamed(output, text=""):
    [choice] = output.outputs
    assert output.finished
    assert (choice.finish_reason, choice.text) == ("error", text)
    assert "this request cannot be computed, and it alone" in choice.error
    assert "fails by script" in choice.error


POISONS = {
    "at once": lambda scheduled: True,
    "in the middle of its prompt": lambda scheduled: scheduled.num_computed_tokens <= 13 < end_of(scheduled),
    "when it samples first": lambda scheduled: end_of(scheduled) >= NUM_PROMPT_TOKENS,
    "when it has generated": lambda scheduled: end_of(scheduled) >= NUM_PROMPT_TOKENS + 4,
}


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("culprit", ["a", "d", "h"])
@pytest.mark.parametrize("options", [{}, {"num_blocks": 14}, {"max_num_batched_tokens": 8}], ids=str)
def test_a_request_that_fails_every_step_fails_alone(poison, culprit, options):
    fake = make(lambda s: s.request_id == culprit and POISONS[poison](s), **options)
    add(fake)
    outputs = run_to_end(fake.engine)
    check_served(outputs, set(NAMES) - {culprit})
    check_blamed(outputs[culprit], "abcd" if poison == "when it has generated" else "")
    assert fake.kv.num_free_blocks == fake.kv.num_blocks
    add(fake, "xyz")  # nothing is left of it
    check_served(run_to_end(fake.engine), "xyz")


def test_it_is_found_by_halves():
    fake = make(lambda s: s.request_id == "f", max_num_batched_tokens=200)
    add(fake)
    check_blamed(run_to_end(fake.engine)["f"])
    assert fake.engine.core.num_failed_steps == 2 + 3


def test_a_request_without_company_is_at_fault_if_the_runner_works():
    fake = make(lambda s: s.request_id == "a")
    add(fake, "a")
    check_blamed(run_to_end(fake.engine)["a"])
    assert fake.engine.core.num_failed_steps == 2
    add(fake, "b")
    check_served(run_to_end(fake.engine), "b")


def test_failures_need_not_follow_one_another():
    """Every failure sends the long prompt back to its beginning, which can be computed, again and again."""
    fake = make(lambda s: s.request_id == "culprit", max_num_batched_tokens=32)
    params = SamplingParams(max_tokens=9, prompt_logprobs=1)  # finds nothing in the cache
    fake.engine.add_request("long", list(range(40)), params)
    add(fake, ["culprit"])
    outputs = run_to_end(fake.engine, max_steps=40)
    check_served(outputs, ["long"])
    check_blamed(outputs["culprit"])


def test_nobody_is_blamed_for_one_failure_after_that_of_another():
    """The first to fail leaves before it can be cleared."""
    fake = make_engine(alphabet, runner_options={"failing_steps": [0, 1]})
    add(fake, "a")
    fake.engine.step()
    fake.engine.abort("a")
    add(fake, "b")
    check_served(run_to_end(fake.engine), "b")


def test_several_culprits_are_found_one_after_the_other():
    fake = make(lambda s: s.request_id in "beg")
    add(fake)
    outputs = run_to_end(fake.engine)
    check_served(outputs, "acdfh")
    for name in "beg":
        check_blamed(outputs[name])


def test_whoever_comes_meanwhile_waits_and_is_served():
    fake = make(lambda s: s.request_id == "g")
    add(fake)
    seen = []
    for step in range(40):
        seen += fake.engine.step()
        if step in (2, 3, 4):
            fake.engine.add_request(f"new{step}", prompt_of("n"), SamplingParams(max_tokens=9))
    outputs = {output.request_id: output for output in seen} | run_to_end(fake.engine)
    check_served(outputs, [*"abcdefh", "new2", "new3", "new4"])


@pytest.mark.parametrize("step", range(2, 9))
def test_a_suspect_that_leaves_clears_the_way(step):
    fake = make(lambda s: s.request_id == "c")
    add(fake)
    outputs = {}
    for _ in range(step):
        outputs.update((output.request_id, output) for output in fake.engine.step())
    for name in "abc":
        fake.engine.abort(name)
    outputs.update(run_to_end(fake.engine))
    check_served(outputs, "defgh")
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_a_step_that_fails_for_its_size_blames_nobody():
    fake = make(lambda s: False)
    submit = fake.runner.submit

    def submit_few(output):
        if len(output.scheduled) > 2:
            fake.runner._failing_steps = {fake.runner.num_submitted}
        return submit(output)

    fake.runner.submit = submit_few
    add(fake)
    check_served(run_to_end(fake.engine), NAMES)


def test_one_continuation_of_several_fails_alone():
    fake = make(lambda s: s.request_id == "a#1")
    add(fake, "a", n=3)
    add(fake, "b")
    outputs = run_to_end(fake.engine)
    check_served(outputs, "b")
    assert [choice.finish_reason for choice in outputs["a"].outputs] == ["length", "error", "length"]
    assert [choice.text for choice in outputs["a"].outputs] == ["abcdefghi", "", "abcdefghi"]


def test_a_fault_of_the_runner_is_nobodys():
    fake = make(lambda s: True)
    add(fake)
    assert fake.engine.step() == []
    with pytest.raises(EngineDeadError, match="two steps failed, and no request is to blame"):
        run_to_end(fake.engine)
    assert fake.engine.core.num_failed_steps == 2


def test_a_runner_that_breaks_while_a_culprit_is_looked_for_ends_the_engine():
    fake = make(lambda s: s.request_id == "d" or fake.runner.num_submitted > 8)
    add(fake)
    with pytest.raises(EngineDeadError, match="no request is to blame"):
        run_to_end(fake.engine)


def test_the_probe_has_a_row_of_its_own_and_gives_it_back():
    outputs: list[SchedulerOutput] = []
    fake = make(lambda s: s.request_id == "a")
    submit = fake.runner.submit
    fake.runner.submit = lambda output: outputs.append(output) or submit(output)
    add(fake, "a")
    run_to_end(fake.engine)
    probe, end = outputs[2:4]
    assert [s.request_id for s in probe.scheduled] == [PROBE_ID]
    assert probe.released_request_ids == ["a"]
    assert probe.scheduled[0].new_block_ids == (fake.kv.block_pool.null_block.block_id,)
    assert (end.scheduled, end.released_request_ids) == ((), (PROBE_ID,))


def test_streams_go_on_beside_the_one_that_fails():
    async def scenario():
        fake = make_engine(spell("hello"), runner_options={"fails": lambda s: s.request_id == "poisoned"})
        async with AsyncEngine(lambda: fake.engine) as engine:
            streams = [
                last_of(engine.generate(f"prompt {name}", SamplingParams(), request_id=name))
                for name in ("a", "poisoned", "b", "c")
            ]
            first, poisoned, *others = await asyncio.gather(*streams)
            check_blamed(poisoned)
            assert [output.outputs[0].text for output in (first, *others)] == ["hello"] * 3
            again = await last_of(engine.generate("one more", SamplingParams()))
            assert again.outputs[0].text == "hello"
            assert engine.state is EngineState.READY
            assert engine.snapshot.finished == {"stop": 4, "error": 1}

    run(scenario())
