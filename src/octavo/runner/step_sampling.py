"""`StepSampling`: runs a step in which somebody samples, and tells everybody's result."""

import itertools
from collections.abc import Iterable

import numpy as np

from octavo.kernels.arrays import FloatArray, IntArray
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.sampling import SamplingInput, SamplingOutput
from octavo.runner.input_batch import LaidOutStep
from octavo.runner.prompt_logprobs import token_logprobs
from octavo.runner.sampling_rows import SamplingRows
from octavo.runner.step_layout import StepLayout
from octavo.sched.output import RequestResult

_ALL_BANNED = (
    "every token is banned: all of the vocabulary would end the text, and min_tokens is not reached; lower "
    "min_tokens, or leave tokens out of stop_token_ids"
)


class StepSampling:
    """Samples the rows of a step, all at once; a row that means nothing fails its request alone.

    Args:
        interpreter: computes the step, and samples.
        sampling_rows: the sampling parameters of all requests.
    """

    def __init__(self, interpreter: Interpreter, sampling_rows: SamplingRows) -> None:
        self._interpreter = interpreter
        self._sampling_rows = sampling_rows

    def run(self, laid_out: LaidOutStep, results: dict[str, RequestResult]) -> None:
        """Compute a step and sample.

        Args:
            laid_out: the step, in which somebody samples.
            results: get a token or an error for everybody who samples.
        """
        layout, step = laid_out
        rows, positions = layout.sampled_row_ids, step.seq_lens[layout.sampled]
        sampling_input = self._sampling_rows.gather(rows, positions)
        sampling, logits = self._interpreter.run_and_sample(step, sampling_input)
        failed = sampling.logprobs.failed
        if self._sampling_rows.remembers_tokens:
            self._sampling_rows.count(rows[~failed], sampling.token_ids[~failed])
        has_logprobs = sampling_input.num_top_logprobs is not None
        told = _with_logprobs(layout, sampling) if has_logprobs else _tokens(sampling.token_ids)
        results.update(zip(layout.sampled_ids, told, strict=True))
        for i in itertools.compress(range(len(failed)), failed.tolist()):
            reason = self._why_all_banned(logits[i], sampling_input, i, row=int(rows[i]))
            error = reason or f"non-finite logits at position {positions[i] - 1}"
            results[layout.sampled_ids[i]] = RequestResult(error=error)

    def _why_all_banned(
        self,
        logits: FloatArray,  # [vocab_size]
        sampling_input: SamplingInput,
        i: int,
        *,
        row: int,
    ) -> str | None:
        """Why nothing could be sampled from logits that mean something."""
        if not np.isfinite(logits).all():
            return None
        num_banned = sampling_input.banned_starts[i + 1] - sampling_input.banned_starts[i]
        return _ALL_BANNED if num_banned == len(logits) else self._sampling_rows.masks.problem(row)


def _tokens(token_ids: IntArray) -> Iterable[RequestResult]:  # [num_sampled]
    return map(RequestResult, token_ids.tolist())


def _with_logprobs(layout: StepLayout, sampling: SamplingOutput) -> Iterable[RequestResult]:
    """In order; of a row that failed, nothing means anything."""
    for i, (place, token_id) in enumerate(zip(layout.sampled, sampling.token_ids.tolist(), strict=True)):
        num_top = layout.requests[place].sampling_params.logprobs
        yield RequestResult(
            token_id, None if num_top is None else token_logprobs(sampling.logprobs, i, num_top)
        )
