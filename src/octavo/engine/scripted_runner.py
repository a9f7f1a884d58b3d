"""`ScriptedRunner`: a runner without a model, whose tokens come from a script. For tests and simulations."""

from collections.abc import Callable, Mapping, Sequence

from octavo.engine.probe import PROBE_ID
from octavo.engine.runner import FinishedStep
from octavo.errors import StepError
from octavo.sched.output import RequestResult, RunnerOutput, ScheduledRequest, SchedulerOutput

Script = Callable[[str, int], int] | Mapping[str, Sequence[int]]
"""Request id and output position to token id: a function, or a list per request, read in a circle."""


class ScriptedRunner:
    """Answers every step at once, with the script's tokens.

    Args:
        script: where tokens come from.
        num_blocks: size of the cache it pretends to have.
        failing_steps: numbers of the submissions, from 0, that raise `StepError`.
        request_errors: request id to an error, which its next sampled token is replaced by.
        fails: whether a request fails the step that it is in, by its share of it.
    """

    def __init__(
        self,
        script: Script,
        *,
        num_blocks: int,
        failing_steps: Sequence[int] = (),
        request_errors: Mapping[str, str] | None = None,
        fails: Callable[[ScheduledRequest], bool] | None = None,
    ) -> None:
        self._script = script
        self._num_blocks = num_blocks
        self._failing_steps = frozenset(failing_steps)
        self._request_errors = dict(request_errors or {})
        self._fails = fails or (lambda _: False)
        self._num_prompt_tokens: dict[str, int] = {}
        self.num_submitted = 0
        self.is_closed = False

    @property
    def num_blocks(self) -> int:
        """Usable blocks of the pretended cache."""
        return self._num_blocks

    def submit(self, output: SchedulerOutput) -> FinishedStep:
        """Answer one step.

        Raises:
            StepError: the step is one of ``failing_steps``, or ``fails`` says so.
        """
        step = self.num_submitted
        self.num_submitted += 1
        for request_id in output.released_request_ids:
            self._num_prompt_tokens.pop(request_id, None)
        if step in self._failing_steps or any(map(self._fails, output.scheduled)):
            raise StepError(f"step {step} fails by script")
        return FinishedStep(RunnerOutput({r.request_id: self._result(r) for r in output.scheduled}))

    def close(self) -> None:
        """Nothing is held."""
        self.is_closed = True

    def _result(self, scheduled: ScheduledRequest) -> RequestResult:
        request_id = scheduled.request_id
        if scheduled.new_request is not None:
            self._num_prompt_tokens[request_id] = len(scheduled.new_request.prompt_token_ids)
        if not scheduled.samples:
            return RequestResult()
        if request_id in self._request_errors:
            return RequestResult(error=self._request_errors.pop(request_id))
        num_tokens = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens
        return RequestResult(self._token(request_id, num_tokens - self._num_prompt_tokens[request_id]))

    def _token(self, request_id: str, position: int) -> int:
        if request_id == PROBE_ID:  # in no script
            return 0
        if callable(self._script):
            return self._script(request_id, position)
        tokens = self._script[request_id]
        return tokens[position % len(tokens)]
