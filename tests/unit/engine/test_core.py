"""One step after another: failures are rolled back; when nothing can be computed any more it is the end."""

import pytest
from engine_fakes import make_engine, run_to_end

from octavo.engine.core import MAX_IDLE_STEPS
from octavo.errors import EngineDeadError, InvariantError, StepError
from octavo.sampling_params import SamplingParams
from octavo.sched.output import SchedulerOutput
from octavo.sched.pause import PauseMode

PROMPT = list(range(10, 30))


def alphabet(request_id, position):
    """Token number i is the letter i, so that a lost or repeated token shows."""
    return ord("a") + position


def test_a_step_that_fails_changes_nothing_for_its_requests():
    expected = make_engine(alphabet)
    expected.engine.add_request("a", PROMPT, SamplingParams(max_tokens=9))
    texts = {name: out.outputs[0].text for name, out in run_to_end(expected.engine).items()}

    failing = make_engine(alphabet, runner_options={"failing_steps": [0, 3, 5]})
    failing.engine.add_request("a", PROMPT, SamplingParams(max_tokens=9))
    outputs = run_to_end(failing.engine)

    assert texts == {"a": "abcdefghi"}
    assert {name: out.outputs[0].text for name, out in outputs.items()} == texts
    assert failing.engine.core.num_failed_steps == 3
    assert failing.kv.num_free_blocks == failing.kv.num_blocks


def test_two_failures_in_a_row_and_a_third_that_is_no_requests_are_the_end():
    fake = make_engine(alphabet, runner_options={"failing_steps": [1, 2, 3]})
    fake.engine.add_request("a", PROMPT, SamplingParams(max_tokens=9))
    fake.engine.step()
    assert fake.engine.step() == []
    with pytest.raises(EngineDeadError, match=r"two steps failed.*step 2 fails by script$") as caught:
        fake.engine.step()
    assert isinstance(caught.value.__cause__, StepError)


def test_a_dead_engine_says_so_to_everyone():
    fake = make_engine(alphabet, runner_options={"failing_steps": [0, 1, 2]})
    fake.engine.add_request("a", PROMPT, SamplingParams())
    fake.engine.step()
    with pytest.raises(EngineDeadError):
        fake.engine.step()
    with pytest.raises(EngineDeadError, match="the engine is dead: two steps failed"):
        fake.engine.step()
    with pytest.raises(EngineDeadError):
        fake.engine.add_request("b", PROMPT, SamplingParams())


@pytest.mark.parametrize("error", [InvariantError("broken"), ValueError("a bug"), KeyboardInterrupt()])
def test_any_other_error_in_a_step_leaves_the_engine_dead(error):
    def script(request_id, position):
        raise error

    fake = make_engine(script)
    fake.engine.add_request("a", PROMPT, SamplingParams())
    with pytest.raises(type(error)):
        fake.engine.step()
    with pytest.raises(EngineDeadError):
        fake.engine.step()


def test_no_progress_while_requests_wait_raises_an_alarm(monkeypatch):
    fake = make_engine(alphabet)
    fake.engine.add_request("a", PROMPT, SamplingParams())
    monkeypatch.setattr(fake.scheduler, "schedule", lambda only: SchedulerOutput(0, ()))  # a deadlock
    for _ in range(MAX_IDLE_STEPS - 1):
        assert fake.engine.step() == []
    with pytest.raises(InvariantError, match=r"no progress: 0 requests running, 1 waiting, 64 blocks"):
        fake.engine.step()


@pytest.mark.parametrize("mode", list(PauseMode))
def test_a_pause_that_was_asked_for_is_no_deadlock(mode):
    fake = make_engine(alphabet)
    fake.engine.add_request("a", PROMPT, SamplingParams(max_tokens=3))
    fake.engine.pause(mode)
    assert (fake.engine.has_work, fake.engine.has_unfinished_requests) == (False, True)
    for _ in range(3 * MAX_IDLE_STEPS):
        assert fake.engine.step() == []
    fake.engine.resume()
    assert run_to_end(fake.engine)["a"].outputs[0].text == "abc"


def test_requests_that_run_go_on_while_nobody_is_admitted():
    fake = make_engine(alphabet)
    fake.engine.add_request("a", PROMPT, SamplingParams(max_tokens=3))
    fake.engine.step()
    fake.engine.pause()
    fake.engine.add_request("b", PROMPT, SamplingParams(max_tokens=3))
    outputs = {}
    while fake.engine.has_work:
        outputs.update((output.request_id, output) for output in fake.engine.step())
    assert outputs.keys() == {"a"}
    assert outputs["a"].finished
    fake.engine.resume()
    assert run_to_end(fake.engine)["b"].outputs[0].text == "abc"


def test_closing_ends_requests_and_closes_the_runner():
    fake = make_engine(alphabet)
    fake.engine.add_request("a", PROMPT, SamplingParams())
    fake.engine.step()
    fake.engine.close()
    fake.engine.close()
    assert fake.runner.is_closed
    assert fake.kv.num_free_blocks == fake.kv.num_blocks
    with pytest.raises(EngineDeadError, match="the engine was closed"):
        fake.engine.step()
