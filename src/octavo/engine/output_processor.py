"""`OutputProcessor`: what happened to scheduler requests, told in terms of what callers asked for.

A caller's request with ``n`` continuations is ``n`` scheduler requests, called its choices here. Their
updates are joined into one `RequestOutput`, with text, log-probabilities and the prompt's share.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from octavo.engine.choice import Choice
from octavo.engine.token_text import logprobs_with_text
from octavo.engine.tokenizer import Tokenizer
from octavo.outputs import Logprobs, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.sched.request import FinishReason
from octavo.sched.update import RequestUpdate


class StopFound(NamedTuple):
    """A stop string ended a scheduler request that is still running."""

    request_id: str
    """Of the scheduler request."""
    stop_string: str


class ProcessedUpdates(NamedTuple):
    """What a step's updates mean."""

    outputs: list[RequestOutput]
    """One per request that changed; later steps do not change them."""
    stops: list[StopFound]
    """What the scheduler must be told."""


@dataclass(slots=True, eq=False)
class _Progress:
    """A caller's request under way."""

    request_id: str
    prompt: str | None
    prompt_token_ids: Sequence[int]
    choice_ids: Sequence[str]
    choices: list[Choice]
    prompt_logprobs: list[Logprobs | None] | None = None
    num_cached_tokens: int = 0

    def output(self) -> RequestOutput:
        return RequestOutput(
            self.request_id,
            self.prompt,
            self.prompt_token_ids,
            [choice.snapshot() for choice in self.choices],
            self.prompt_logprobs,
            self.num_cached_tokens,
        )


class OutputProcessor:
    """Keeps the text side of every request under way."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._requests: dict[str, _Progress] = {}
        self._choices: dict[str, tuple[_Progress, Choice]] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    @property
    def request_ids(self) -> list[str]:
        """The callers' requests under way, oldest first."""
        return list(self._requests)

    def add(
        self,
        request_id: str,
        choice_ids: Sequence[str],
        *,
        prompt: str | None,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        seed: int,
    ) -> None:
        """Begin a request whose choice i is the scheduler's request ``choice_ids[i]``."""
        choices = [Choice(self._tokenizer, params, index=i, seed=seed) for i in range(len(choice_ids))]
        progress = _Progress(request_id, prompt, prompt_token_ids, choice_ids, choices)
        if params.prompt_logprobs is not None:
            progress.prompt_logprobs = [None]  # the first token has none, and the others come all at once
        self._requests[request_id] = progress
        self._choices.update(
            (choice_id, (progress, choice)) for choice_id, choice in zip(choice_ids, choices, strict=True)
        )

    def process(self, updates: Iterable[RequestUpdate]) -> ProcessedUpdates:
        """Take in the updates of one step; requests that ended are forgotten."""
        changed: dict[str, _Progress] = {}
        stops: list[StopFound] = []
        for update in updates:
            if update.request_id not in self._choices:
                continue  # aborted while the step was under way
            progress, choice = self._choices[update.request_id]
            changed[progress.request_id] = progress
            if choice.output.index == 0:
                self._apply_prompt_part(progress, update)
            if choice.apply(update):
                stops.append(StopFound(update.request_id, str(choice.output.stop_reason)))
            if choice.output.finished:
                del self._choices[update.request_id]
        outputs = [progress.output() for progress in changed.values()]
        for output in outputs:
            if output.finished:
                del self._requests[output.request_id]
        return ProcessedUpdates(outputs, stops)

    def abort(self, request_id: str) -> tuple[RequestOutput, list[str]] | None:
        """End a request; text that was held back comes out.

        Returns:
            The final output and the scheduler requests that were still running, or ``None`` if it is unknown.
        """
        progress = self._requests.pop(request_id, None)
        if progress is None:
            return None
        running = [choice_id for choice_id in progress.choice_ids if choice_id in self._choices]
        for choice_id in running:
            _, choice = self._choices.pop(choice_id)
            choice.finish(FinishReason.ABORT)
        return progress.output(), running

    def _apply_prompt_part(self, progress: _Progress, update: RequestUpdate) -> None:
        progress.num_cached_tokens = max(progress.num_cached_tokens, update.num_cached_tokens)
        if update.prompt_logprobs:
            progress.prompt_logprobs = [None]
            progress.prompt_logprobs += (
                logprobs_with_text(self._tokenizer, token_id, logprobs)
                for token_id, logprobs in zip(
                    progress.prompt_token_ids[1:], update.prompt_logprobs, strict=True
                )
            )
