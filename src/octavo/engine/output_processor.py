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
from octavo.errors import OctavoError
from octavo.outputs import Logprobs, RequestOutput
from octavo.sampling_params import RequestOutputKind
from octavo.sched.request import FinishReason, Request
from octavo.sched.update import RequestUpdate


class StopFound(NamedTuple):
    """A stop string ended a scheduler request that is still running."""

    request_id: str
    """Of the scheduler request."""
    stop_string: str


class ProcessedUpdates(NamedTuple):
    """What a step's updates mean."""

    outputs: list[RequestOutput]
    """One per request that has something to tell; later steps do not change them."""
    stops: list[StopFound]
    """What the scheduler must be told."""


@dataclass(slots=True, eq=False)
class RequestProgress:
    """A caller's request under way."""

    request_id: str
    prompt: str | None
    first: Request
    """The first of the scheduler's requests."""
    choices: dict[str, Choice]
    """By the id of the scheduler's request, in order."""
    prompt_logprobs: list[Logprobs | None] | None
    num_running: int
    """Continuations that have not ended."""
    embedding: Sequence[float] | None = None

    def take_output(self, changed: Iterable[Choice]) -> RequestOutput:
        """What is to be told now that ``changed`` have changed."""
        is_delta = self.first.sampling_params.output_kind is RequestOutputKind.DELTA
        told = changed if is_delta else self.choices.values()
        has_token = self.first.num_output_tokens > 0
        output = RequestOutput(
            self.request_id,
            self.prompt,
            self.first.prompt_token_ids,
            [choice.take_output() for choice in told],
            self.prompt_logprobs,
            self.first.num_cached_tokens if has_token else 0,
            self.num_running == 0,
            self.embedding,
            self.first.cache_receipt if has_token else None,
        )
        if is_delta:
            self.prompt_logprobs = None
        return output


class OutputProcessor:
    """Keeps the text side of every request under way."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._requests: dict[str, RequestProgress] = {}
        self._choices: dict[str, tuple[RequestProgress, Choice]] = {}
        self._quiet: set[str] = set()  # those that need not hear of every token

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    @property
    def request_ids(self) -> list[str]:
        """The callers' requests under way, oldest first."""
        return list(self._requests)

    def prepare(self, request_id: str, requests: Sequence[Request], *, prompt: str | None) -> RequestProgress:
        """Make everything that a request needs here, for `add`.

        Args:
            request_id: of the caller's request.
            requests: the scheduler's, one for each continuation, with no token of output.
            prompt: the text of the prompt, if there is one.
        """
        first = requests[0]
        choices = {request.request_id: Choice(self._tokenizer, request) for request in requests}
        # The first token has none, and those of the others come all at once; until then there are none.
        has_them = first.sampling_params.prompt_logprobs is not None and first.num_prompt_tokens == 1
        prompt_logprobs: list[Logprobs | None] | None = [None] if has_them else None
        return RequestProgress(request_id, prompt, first, choices, prompt_logprobs, len(choices))

    def add(self, progress: RequestProgress) -> None:
        """Begin a request. This cannot fail, so the scheduler and this agree on what is under way."""
        self._requests[progress.request_id] = progress
        for choice_id, choice in progress.choices.items():
            self._choices[choice_id] = progress, choice
            if not choice.must_hear:
                self._quiet.add(choice_id)

    def process(self, updates: Iterable[RequestUpdate]) -> ProcessedUpdates:
        """Take in the updates of one step; requests that ended are forgotten."""
        changed: dict[RequestProgress, list[Choice]] = {}
        stops: list[StopFound] = []
        for update in updates:
            if update.request_id in self._quiet and update.has_only_token:
                continue  # the request has it
            entry = self._choices.get(update.request_id)
            if entry is None:
                continue  # aborted while the step was under way
            progress, choice = entry
            if choice.index == 0:
                self._apply_prompt_part(progress, update)
            if choice.apply(update):
                stops.append(StopFound(update.request_id, str(choice.stop_reason)))
            if choice.is_finished:
                self._end_choice(progress, update.request_id)
            changed.setdefault(progress, []).append(choice)
        outputs: list[RequestOutput] = []
        for progress, choices in changed.items():
            if progress.num_running == 0:
                del self._requests[progress.request_id]
            elif progress.first.sampling_params.output_kind is RequestOutputKind.FINAL_ONLY:
                continue
            outputs.append(progress.take_output(choices))
        return ProcessedUpdates(outputs, stops)

    def refuse(self, choice_id: str, error: OctavoError) -> tuple[RequestOutput, list[str]] | None:
        """End a request because one of its choices cannot be admitted; returns the same as `abort`."""
        if choice_id not in self._choices:
            return None  # its siblings ended it
        progress, _ = self._choices[choice_id]
        ended = self.abort(progress.request_id, FinishReason.ERROR)
        if ended is not None:
            ended[0].refusal = error
        return ended

    def abort(
        self, request_id: str, reason: FinishReason = FinishReason.ABORT
    ) -> tuple[RequestOutput, list[str]] | None:
        """End a request; text that was held back comes out.

        Returns:
            The final output and the scheduler requests that were still running, or ``None`` if it is unknown.
        """
        progress = self._requests.pop(request_id, None)
        if progress is None:
            return None
        running = [choice_id for choice_id, choice in progress.choices.items() if not choice.is_finished]
        for choice_id in running:
            progress.choices[choice_id].finish(reason)
            self._end_choice(progress, choice_id)
        return progress.take_output([progress.choices[choice_id] for choice_id in running]), running

    def _end_choice(self, progress: RequestProgress, choice_id: str) -> None:
        progress.num_running -= 1
        del self._choices[choice_id]
        self._quiet.discard(choice_id)

    def _apply_prompt_part(self, progress: RequestProgress, update: RequestUpdate) -> None:
        progress.embedding = update.embedding
        if update.prompt_logprobs:
            progress.prompt_logprobs = [None]
            progress.prompt_logprobs += (
                logprobs_with_text(self._tokenizer, token_id, logprobs)
                for token_id, logprobs in zip(
                    progress.first.prompt_token_ids[1:], update.prompt_logprobs, strict=True
                )
            )
