"""`Choice`: the text side of one of the ``n`` continuations of a request, as its tokens come in."""

from collections.abc import Sequence

from octavo.engine.detokenizer import Detokenizer
from octavo.engine.list_view import ListView
from octavo.engine.stop_strings import StopStringScanner
from octavo.engine.token_text import logprobs_with_text
from octavo.engine.tokenizer import Tokenizer
from octavo.outputs import CompletionOutput, Logprobs
from octavo.sampling_params import RequestOutputKind
from octavo.sched.request import FinishReason, Request
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
    """Makes text of tokens when it is asked for, collects log-probabilities, finds stop strings.

    Text is only ever appended: what was shown is never taken back. What may still become a stop string,
    or is an incomplete character, is held back until it is certain or the continuation ends.

    Args:
        tokenizer: of the model.
        request: the scheduler's, which holds the tokens.

    Attributes:
        index: which of the continuations it is.
        must_hear: whether it must be told of every token; if not, of those alone that bring something more.
        finish_reason: as in `CompletionOutput`.
        stop_reason: as in `CompletionOutput`.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        params = request.sampling_params
        self.index = request.choice_index
        self.must_hear = params.output_kind is not RequestOutputKind.FINAL_ONLY or bool(params.stop)
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self._tokenizer = tokenizer
        self._request = request
        self._params = params
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens)
        self._scanner = StopStringScanner(params.stop, include_in_output=params.include_stop_str_in_output)
        self._error: str | None = None
        self._cumulative_logprob = None if params.logprobs is None else 0.0
        self._num_read = request.num_tokens
        """Tokens, those of the prompt among them, that text was made of."""
        # What the next output tells: everything so far, or what is new.
        self._text = ""
        self._pieces: list[str] = []
        """Text that is not in ``_text`` yet: adding each piece at once would copy the text every time."""
        self._told_from = request.num_tokens
        """The first of the tokens."""
        self._logprobs: list[Logprobs] = []

    @property
    def is_finished(self) -> bool:
        """Whether no more tokens will come."""
        return self.finish_reason is not None

    def apply(self, update: RequestUpdate) -> bool:
        """Take in one update, whose token the request has.

        Returns:
            Whether a stop string ended it, which the scheduler does not know yet.
        """
        if update.token_id is not None:
            self._take_token(update.token_id, update)
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
        token_ids = self._request.token_ids
        output = CompletionOutput(
            self.index,
            self._text,
            ListView(token_ids, self._told_from) if may_grow else token_ids[self._told_from :],
            self._cumulative_logprob,
            self._told_logprobs(may_grow=may_grow),
            self.finish_reason,
            self.stop_reason,
            self._error,
            self._request.seed,
        )
        if not is_whole:
            self._text, self._logprobs, self._told_from = "", [], len(token_ids)
        return output

    def _told_logprobs(self, *, may_grow: bool) -> Sequence[Logprobs] | None:
        if self._params.logprobs is None:
            return None
        return ListView(self._logprobs) if may_grow else self._logprobs

    def _take_token(self, token_id: int, update: RequestUpdate) -> None:
        if self._cumulative_logprob is not None and update.logprobs is not None:
            self._logprobs.append(logprobs_with_text(self._tokenizer, token_id, update.logprobs))
            self._cumulative_logprob += update.logprobs.logprob
        if update.finish_reason is FinishReason.STOP and not self._params.include_stop_str_in_output:
            self._read_tokens(but_last=1)  # the token that ends the text is no part of it
        elif self._params.stop:
            self._read_tokens()

    def _read_tokens(self, *, but_last: int = 0) -> None:
        """Make text of the tokens that came since the last call; the last ones are passed over."""
        request = self._request
        end = request.num_tokens - but_last
        if self._num_read < end:
            text = self._detokenizer.append(request.token_ids[self._num_read : end])
            self._append_text(text, may_stop=request.num_output_tokens >= self._params.min_tokens)
        self._num_read = request.num_tokens

    def _append_text(self, text: str, *, may_stop: bool) -> None:
        scanned = self._scanner.push(text, may_stop=may_stop)
        self._pieces.append(scanned.text)
        if scanned.stop_string is not None:
            self.finish_reason = FinishReason.STOP.value
            self.stop_reason = scanned.stop_string
