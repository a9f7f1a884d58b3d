"""`GenerationProgress`: a bar on standard error with the prompts done and the tokens per second."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from octavo.diagnostics import best_effort_stderr


class GenerationProgress:
    """Shows how far `LLM.generate` is.

    Args:
        num_prompts: how many there are.
        enabled: show anything at all.
    """

    def __init__(self, num_prompts: int, *, enabled: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(file=best_effort_stderr()),
            disable=not enabled,
        )
        self._task = self._progress.add_task("Prompts", total=num_prompts, rate="")
        self._started = time.monotonic()
        self._enabled = enabled

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, num_finished: int, num_tokens: int) -> None:
        """Show how many prompts are done, and how many tokens have been generated for all of them."""
        if not self._enabled:
            return
        seconds = max(time.monotonic() - self._started, 1e-9)
        self._progress.update(self._task, completed=num_finished, rate=f"{num_tokens / seconds:.1f} tok/s")
