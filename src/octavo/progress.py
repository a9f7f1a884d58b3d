"""`GenerationProgress`: a bar on standard error with the prompts done and the tokens per second."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from octavo.outputs import RequestOutput


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
            console=Console(stderr=True),
            disable=not enabled,
        )
        self._task = self._progress.add_task("Prompts", total=num_prompts, rate="")
        self._started = time.monotonic()
        self._enabled = enabled
        self._num_tokens: dict[str, int] = {}
        self._num_all_tokens = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, output: RequestOutput) -> None:
        """Count what a request has generated so far, and whether it has finished."""
        if not self._enabled:
            return
        num_tokens = sum(len(choice.token_ids) for choice in output.outputs)
        # A running total: adding up all requests for each output of a step would be quadratic in them.
        self._num_all_tokens += num_tokens - self._num_tokens.get(output.request_id, 0)
        self._num_tokens[output.request_id] = num_tokens
        seconds = max(time.monotonic() - self._started, 1e-9)
        self._progress.update(
            self._task,
            advance=int(output.finished),
            rate=f"{self._num_all_tokens / seconds:.1f} tok/s",
        )
