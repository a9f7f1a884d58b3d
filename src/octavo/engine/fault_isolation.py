"""`FaultIsolation`: finds the request that makes steps fail, so that it fails alone.

A step that fails is tried again. When a request fails a second time, before it has got past the place where
it failed, a probe tells whether the runner computes anything at all. If it does, the requests of the step are
suspects: half of them is computed with nobody else, then half of the half that fails, until a step of one
request fails. Suspects who get past the place where they failed are cleared. All others wait meanwhile and
lose nothing but time.
"""

from collections.abc import Callable, Collection

from octavo.engine.probe import check_runner
from octavo.engine.runner import Runner
from octavo.errors import EngineDeadError, StepError
from octavo.sched.output import SchedulerOutput

_Suspects = dict[str, int]
"""Request id to the number of tokens that it must have computed to be cleared."""


class FaultIsolation:
    """Told of every step, it says who may be in the next one.

    Args:
        runner: whose steps fail.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._failed_once: _Suspects = {}  # who has not got past it since
        self._groups: list[_Suspects] = []  # disjoint; the last one is on trial

    def trial(self, is_under_way: Callable[[str], bool]) -> Collection[str] | None:
        """The requests that alone may be in the next step; ``None``: anybody may.

        Args:
            is_under_way: tells by its id whether a request has not ended meanwhile.
        """
        self._failed_once = _those(is_under_way, self._failed_once)
        while self._groups:
            group = _those(is_under_way, self._groups.pop())
            if group:
                self._groups.append(group)
                return group.keys()
        return None

    def step_ran(self, output: SchedulerOutput) -> None:
        """A step was computed."""
        if self._failed_once or self._groups:
            reached = _ends(output)
            self._failed_once = _uncleared(self._failed_once, reached)
            self._groups = [_uncleared(group, reached) for group in self._groups]

    def step_failed(self, output: SchedulerOutput, error: StepError) -> str | None:
        """A step failed and was rolled back.

        Returns:
            The id of the request that is at fault, if that is known now; it must be ended.

        Raises:
            EngineDeadError: no request is at fault: the runner computes nothing any more.
        """
        suspects = _ends(output)
        if not self._groups:
            failed_before = self._failed_once.keys() & suspects
            self._failed_once |= suspects
            if not failed_before:
                return None
            self._check_runner(output, error)
        if len(suspects) == 1:
            self._failed_once, self._groups = {}, []
            return next(iter(suspects))
        self._split(suspects)
        return None

    def _split(self, suspects: _Suspects) -> None:
        """Put half of the suspects on trial, then the other half, then whoever was to be tried with them."""
        on_trial = self._groups.pop() if self._groups else {}
        untried = {name: end for name, end in on_trial.items() if name not in suspects}
        names = list(suspects)
        halves = names[len(names) // 2 :], names[: len(names) // 2]
        self._groups += [untried, *({name: suspects[name] for name in half} for half in halves)]

    def _check_runner(self, output: SchedulerOutput, error: StepError) -> None:
        try:
            check_runner(self._runner, output)
        except StepError as probe_error:
            raise EngineDeadError(
                "two steps failed, and no request is to blame: not even a single token can be computed "
                f"({probe_error}): {error}"
            ) from error


def _ends(output: SchedulerOutput) -> _Suspects:
    """How many tokens each request of a step has computed at its end."""
    return {s.request_id: s.num_computed_tokens + s.num_scheduled_tokens for s in output.scheduled}


def _those(is_meant: Callable[[str], bool], suspects: _Suspects) -> _Suspects:
    return {name: end for name, end in suspects.items() if is_meant(name)}


def _uncleared(suspects: _Suspects, reached: _Suspects) -> _Suspects:
    return {name: end for name, end in suspects.items() if reached.get(name, 0) < end}
