"""`check_runner`: whether a runner computes anything, found out with a token that nobody asked for."""

from octavo.engine.runner import Runner
from octavo.sampling_params import SamplingParams
from octavo.sched.output import NewRequest, ScheduledRequest, SchedulerOutput

PROBE_ID = "#probe"
"""No request has this id: a single ``#`` is the engine's, see `octavo.engine.choice.choice_ids`."""


def check_runner(runner: Runner, failed: SchedulerOutput) -> None:
    """Compute one token behind a prompt of one token.

    Its K/V goes to the null block, which nobody reads, so the scheduler and the cache need not know.

    Args:
        runner: whose last step failed.
        failed: that step, rolled back; its rows are given up, so that there is one for the probe.

    Raises:
        StepError: the runner computes nothing any more.
    """
    prompt = (0,)
    params = SamplingParams(temperature=0.0, max_tokens=1)
    new_request = NewRequest(prompt, (), params, seed=0, choice_index=0)
    null_block = (runner.num_blocks,)
    probe = ScheduledRequest(PROBE_ID, 0, prompt, 0, null_block, samples=True, new_request=new_request)
    failed_ids = [scheduled.request_id for scheduled in failed.scheduled]
    runner.submit(SchedulerOutput(failed.step, (probe,), (), failed_ids)).result()
    runner.submit(SchedulerOutput(failed.step, (), (), (PROBE_ID,))).result()
