"""`PromptLogprobs`: the log-probability of each token of a prompt, a few rows of logits at a time."""

from collections.abc import Iterable

import numpy as np

from octavo.kernels.arrays import IntArray
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.sampling import LogprobsOutput
from octavo.runner.request_rows import RequestRow
from octavo.runner.step_layout import RequestShare
from octavo.sched.output import RequestResult, ScheduledRequest, TokenLogprobs

MAX_LOGIT_ROWS = 32
"""Rows whose logits exist at once: with 262,144 tokens in the vocabulary a row takes a megabyte."""


class NonFiniteLogitsError(ArithmeticError):
    """A row of logits of one request has a NaN or an infinity in it."""


def token_logprobs(output: LogprobsOutput, row: int, num_top: int) -> TokenLogprobs:
    """One row of an output as plain numbers, with as many top tokens as its request asked for."""
    return TokenLogprobs(
        float(output.logprobs[row]),
        int(output.ranks[row]),
        output.top_token_ids[row, :num_top].tolist(),
        output.top_logprobs[row, :num_top].tolist(),
    )


class PromptLogprobs:
    """Runs the output head over prompt rows of the step that ran last.

    Args:
        interpreter: whose step it was; its sampler turns logits into log-probabilities.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def add_results(self, reporting: Iterable[RequestShare], results: dict[str, RequestResult]) -> None:
        """Take in what the step that ran last has made known.

        Args:
            reporting: the requests that may have something to report.
            results: get the log-probabilities of whoever is at the end of its prompt, or an error.
        """
        for share in reporting:
            row, scheduled, _ = share
            if not row.reports_prompt_logprobs:
                continue
            try:
                self._collect(*share)
            except NonFiniteLogitsError as error:
                results[scheduled.request_id] = RequestResult(error=str(error))
                continue
            if scheduled.samples:  # the end of the prompt
                row.reports_prompt_logprobs = False
                result = results[scheduled.request_id]
                results[scheduled.request_id] = result._replace(prompt_logprobs=tuple(row.prompt_logprobs))

    def _collect(self, row: RequestRow, scheduled: ScheduledRequest, first_row: int) -> None:
        """Add to ``row.prompt_logprobs`` what this step has made known.

        Raises:
            NonFiniteLogitsError: the logits of a prompt position mean nothing.
        """
        start = scheduled.num_computed_tokens
        # The logits at position p are about the token at p + 1, which the prompt's last position has none of.
        num_known = min(start + scheduled.num_scheduled_tokens, len(row.prompt_token_ids) - 1) - start
        max_top = row.sampling_params.prompt_logprobs or 0
        for chunk in range(0, num_known, MAX_LOGIT_ROWS):
            size = min(MAX_LOGIT_ROWS, num_known - chunk)
            targets = row.prompt_token_ids[start + chunk + 1 : start + chunk + 1 + size]
            rows: IntArray = np.arange(first_row + chunk, first_row + chunk + size, dtype=np.int32)
            logits = self._interpreter.logits(rows)
            num_top = min(max_top, logits.shape[1])
            output = self._interpreter.sampler.logprobs(logits, np.array(targets, np.int32), num_top)
            if output.failed.any():
                position = start + chunk + int(output.failed.argmax())
                raise NonFiniteLogitsError(f"non-finite logits at prompt position {position}")
            row.prompt_logprobs += (token_logprobs(output, i, num_top) for i in range(size))
