"""`Choice`: the text side of one of the ``n`` continuations of a request, as its tokens come in."""

from collections.abc import Sequence

from octavo.engine.detokenizer import Detokenizer
from octavo.engine.list_view import ListView
from octavo.engine.stop_strings import StopStringScanner
from octavo.engine.token_text import logprobs_with_text
from octavo.engine.tokenizer import Tokenizer
from octavo.outputs import CompletionOutput, Logprobs
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sched.request import FinishReason
from octavo.sched.update import RequestUpdate


def choice_ids(request_id: str, n: int) -> list[str]:
    """The ids under which the scheduler and the cache know the continuations of a request.

    No two requests have one in common, whatever ids callers choose: theirs have every ``#`` doubled, so a
    single one is the engine's alone. Request "a" with two continuations is "a#0" and "a#1", and a request
    that calls itself "a#0" is "a##0".
    """
    name = request_id.replace("#", "##")
    return [name] if n == 1 else [f"{name}#{index}" for index in range(n)]


class Choice:
    """Collects tokens and log-probabilities, makes text of them when it is asked for, finds stop strings.

    Text is only ever appended: what was shown is never taken back. What may still become a stop string,
    or is an incomplete character, is held back until it is certain or the continuation ends. Only a stop
    string needs the text of every token at once; without one, text is made when an output is taken.

    Attributes:
        index: which of the continuations it is.
        num_tokens: how many have come.
        finish_reason: as in `CompletionOutput`.
        stop_reason: as in `CompletionOutput`.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, *, index: int, seed: int) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self._tokenizer = tokenizer
        self._params = params
        self._seed = seed
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens)
        self._scanner = StopStringScanner(params.stop, include_in_output=params.include_stop_str_in_output)
        self._error: str | None = None
        self.num_tokens = 0
        self._cumulative_logprob = None if params.logprobs is None else 0.0
        # What the next output tells: everything so far, or what is new.
        self._text = ""
        self._pieces: list[str] = []
        """Text that is not in ``_text`` yet: adding each piece at once would copy the text every time."""
        self._token_ids: list[int] = []
        self._num_read = 0
        """Tokens at the front of ``_token_ids`` that text was made of."""
        self._logprobs: list[Logprobs] = []

    @property
    def is_finished(self) -> bool:
        """Whether no more tokens will come."""
        return self.finish_reason is not None

    def apply(self, update: RequestUpdate) -> bool:
        """Take in one update.

        Returns:
            Whether a stop string ended it, which the scheduler does not know yet.
        """
        if update.token_id is not None:
            self._append_token(update.token_id, update)
        if self.finish_reason is not None:  # by a stop string
            return update.finish_reason is None
        if update.finish_reason is not None:
            self._error = update.error
            self.finish(update.finish_reason, update.stop_reason)
        return False

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """End it: release the text that was held back."""
        self._read_tokens()
        self._append_text(self._detokenizer.flush(), may_stop=False)
        self._pieces.append(self._scanner.flush())
        self.finish_reason = reason.value
        self.stop_reason = stop_reason

    def take_output(self) -> CompletionOutput:
        """What is to be told now; later tokens do not change it."""
        self._read_tokens()
        self._text += "".join(self._pieces)
        self._pieces.clear()
        is_whole = self._params.output_kind is not RequestOutputKind.DELTA
        may_grow = is_whole and not self.is_finished
        output = CompletionOutput(
            self.index,
            self._text,
            ListView(self._token_ids) if may_grow else self._token_ids,
            self._cumulative_logprob,
            self._told_logprobs(may_grow=may_grow),
            self.finish_reason,
            self.stop_reason,
            self._error,
            self._seed,
        )
        if not is_whole:
            self._text, self._token_ids, self._logprobs, self._num_read = "", [], [], 0
        return output

    def _told_logprobs(self, *, may_grow: bool) -> Sequence[Logprobs] | None:
        if self._params.logprobs is None:
            return None
        return ListView(self._logprobs) if may_grow else self._logprobs

    def _append_token(self, token_id: int, update: RequestUpdate) -> None:
        self._token_ids.append(token_id)
        self.num_tokens += 1
        if self._cumulative_logprob is not None and update.logprobs is not None:
            self._logprobs.append(logprobs_with_text(self._tokenizer, token_id, update.logprobs))
            self._cumulative_logprob += update.logprobs.logprob
        if update.finish_reason is FinishReason.STOP and not self._params.include_stop_str_in_output:
            self._read_tokens(but_last=1)  # the token that ends the text is no part of it
        elif self._params.stop:
            self._read_tokens()

    def _read_tokens(self, *, but_last: int = 0) -> None:
        """Make text of the tokens that came since the last call; the last ones are passed over."""
        end = len(self._token_ids) - but_last
        if self._num_read < end:
            text = self._detokenizer.append(self._token_ids[self._num_read : end])
            self._append_text(text, may_stop=self.num_tokens >= self._params.min_tokens)
        self._num_read = len(self._token_ids)

    def _append_text(self, text: str, *, may_stop: bool) -> None:
        scanned = self._scanner.push(text, may_stop=may_stop)
        self._pieces.append(scanned.text)
        if scanned.stop_string is not None:
            self.finish_reason = FinishReason.STOP.value
            self.stop_reason = scanned.stop_string
