"""A runner whose tokens come from a script."""

import pytest

from octavo.engine.scripted_runner import ScriptedRunner
from octavo.errors import StepError
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest, RequestResult, ScheduledRequest, SchedulerOutput


def scheduled(name, start, token_ids, *, samples=True, new=None):
    request = None if new is None else NewRequest(new[0], new[1], SamplingParams(), 1, 0)
    return ScheduledRequest(name, start, token_ids, 0, (), samples, request)


def results(runner, *requests, released=()):
    return runner.submit(SchedulerOutput(1, requests, (), released)).result().results


def test_a_function_gets_the_request_and_the_output_position():
    runner = ScriptedRunner(lambda name, position: len(name) * 100 + position, num_blocks=4)
    assert results(runner, scheduled("ab", 0, (7, 8, 9), new=((7, 8, 9), ())))["ab"].token_id == 200
    assert results(runner, scheduled("ab", 3, (200,)))["ab"].token_id == 201
    resumed = scheduled("ab", 0, (7, 8, 9, 200, 201), new=((7, 8, 9), (200, 201)))
    assert results(runner, resumed, released=["ab"])["ab"].token_id == 202


def test_a_list_is_read_in_a_circle():
    runner = ScriptedRunner({"a": [5, 6]}, num_blocks=4)
    got = [results(runner, scheduled("a", 0, (1,), new=((1,), ())))["a"].token_id]
    got += [results(runner, scheduled("a", position, (0,)))["a"].token_id for position in (1, 2, 3)]
    assert got == [5, 6, 5, 6]


def test_a_part_of_a_prompt_gives_no_token():
    runner = ScriptedRunner({"a": [5]}, num_blocks=4)
    assert (
        results(runner, scheduled("a", 0, (1, 2), samples=False, new=((1, 2, 3), ())))["a"] == RequestResult()
    )


def test_failures_come_where_they_were_ordered():
    runner = ScriptedRunner({"a": [5]}, num_blocks=4, failing_steps=[1], request_errors={"a": "bad luck"})
    assert results(runner, scheduled("a", 0, (1,), new=((1,), ())))["a"].error == "bad luck"
    with pytest.raises(StepError, match="step 1 fails by script"):
        results(runner)
    assert results(runner, scheduled("a", 0, (1,), new=((1,), ())))["a"].token_id == 5
    assert (runner.num_blocks, runner.num_submitted) == (4, 3)
