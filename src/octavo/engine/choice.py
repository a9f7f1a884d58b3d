"""`Choice`: the text side of one of the ``n`` continuations of a request, as its tokens come in."""

from octavo.engine.detokenizer import Detokenizer
from octavo.engine.stop_strings import StopStringScanner
from octavo.engine.token_text import logprobs_with_text
from octavo.engine.tokenizer import Tokenizer
from octavo.outputs import CompletionOutput
from octavo.sampling_params import SamplingParams
from octavo.sched.request import FinishReason
from octavo.sched.update import RequestUpdate


class Choice:
    """Token by token: detokenize, look for stop strings, collect log-probabilities.

    Text is only ever appended: what was shown is never taken back. What may still become a stop string,
    or is an incomplete character, is held back until it is certain or the continuation ends.

    Attributes:
        output: everything so far; changes with every token, so hand out copies.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, *, index: int, seed: int) -> None:
        self._tokenizer = tokenizer
        self._params = params
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=params.skip_special_tokens)
        self._scanner = StopStringScanner(params.stop, include_in_output=params.include_stop_str_in_output)
        self.output = CompletionOutput(index, seed=seed)
        if params.logprobs is not None:
            self.output.logprobs = []
            self.output.cumulative_logprob = 0.0

    def apply(self, update: RequestUpdate) -> bool:
        """Take in one update.

        Returns:
            Whether a stop string ended it, which the scheduler does not know yet.
        """
        if update.token_id is not None:
            self._append_token(update.token_id, update)
        if self.output.finished:  # by a stop string
            return update.finish_reason is None
        if update.finish_reason is not None:
            self.output.error = update.error
            self.finish(update.finish_reason, update.stop_reason)
        return False

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """End it: release the text that was held back."""
        self._append_text(self._detokenizer.flush(), may_stop=False)
        self.output.text += self._scanner.flush()
        self.output.finish_reason = reason.value
        self.output.stop_reason = stop_reason

    def snapshot(self) -> CompletionOutput:
        """A copy of the output that later tokens do not change."""
        output = self.output
        return CompletionOutput(
            output.index,
            output.text,
            output.token_ids.copy(),
            output.cumulative_logprob,
            None if output.logprobs is None else output.logprobs.copy(),
            output.finish_reason,
            output.stop_reason,
            output.error,
            output.seed,
        )

    def _append_token(self, token_id: int, update: RequestUpdate) -> None:
        output = self.output
        output.token_ids.append(token_id)
        if output.logprobs is not None and update.logprobs is not None:
            output.logprobs.append(logprobs_with_text(self._tokenizer, token_id, update.logprobs))
            output.cumulative_logprob = (output.cumulative_logprob or 0.0) + update.logprobs.logprob
        if update.finish_reason is FinishReason.STOP and not self._params.include_stop_str_in_output:
            return  # the token that ends the text is no part of it
        may_stop = len(output.token_ids) >= self._params.min_tokens
        self._append_text(self._detokenizer.append(token_id), may_stop=may_stop)

    def _append_text(self, text: str, *, may_stop: bool) -> None:
        scanned = self._scanner.push(text, may_stop=may_stop)
        self.output.text += scanned.text
        if scanned.stop_string is not None:
            self.output.finish_reason = FinishReason.STOP.value
            self.output.stop_reason = scanned.stop_string
