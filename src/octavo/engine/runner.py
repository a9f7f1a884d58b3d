"""`Runner`: the one interface through which the engine computes. Implementations live elsewhere."""

from typing import NamedTuple, Protocol

from octavo.sched.output import RunnerOutput, SchedulerOutput


class StepHandle(Protocol):
    """A step under way. A synchronous runner returns a finished one."""

    def result(self) -> RunnerOutput:
        """Wait for the step and return what it computed.

        Raises:
            StepError: the step failed as a whole; nothing it wrote may be trusted.
        """
        ...


class FinishedStep(NamedTuple):
    """The handle of a step that was computed when it was submitted."""

    output: RunnerOutput

    def result(self) -> RunnerOutput:
        """What the step computed."""
        return self.output


class Runner(Protocol):
    """Computes scheduler outputs: the numpy or native model runner, a simulator, a script in a test."""

    @property
    def num_blocks(self) -> int:
        """Usable blocks of the KV cache."""
        ...

    def submit(self, output: SchedulerOutput) -> StepHandle:
        """Start one step. Steps run in the order of submission."""
        ...

    def close(self) -> None:
        """Give back memory and threads; calling it again does nothing."""
        ...
