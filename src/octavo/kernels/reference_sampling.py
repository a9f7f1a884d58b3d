"""`ReferenceSampler`: how logits become a token, in numpy (ADR 0001). Slow; it is the specification."""

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import FloatArray, IntArray
from octavo.kernels.philox import uniform
from octavo.kernels.reference_exp import exp_float32
from octavo.kernels.sampling import LogprobsOutput, SamplingInput, SamplingOutput, no_logprobs


class ReferenceSampler:
    """Implements `Sampler` row by row.

    A row fails if it has a NaN or an infinite logit, if nothing is left to choose from, or if dividing by
    its temperature overflows. The numbers of a failed row are zeros and NaNs.
    """

    def sample(self, logits: FloatArray, sampling_input: SamplingInput) -> SamplingOutput:
        """Choose a token for each row of ``logits`` [num_rows, vocab_size], which is not changed."""
        choices = [sample_row(row, sampling_input, index) for index, row in enumerate(logits)]
        token_ids = np.array([0 if token is None else token for token in choices], np.int32)
        failed = np.array([token is None for token in choices], np.bool_)
        num_top = sampling_input.num_top_logprobs
        if num_top is None:
            output = no_logprobs(len(logits))
            output.failed[:] = ~np.isfinite(logits).all(axis=-1)
        else:
            output = self.logprobs(logits, token_ids, num_top)
        return SamplingOutput(token_ids=token_ids, logprobs=output._replace(failed=output.failed | failed))

    def logprobs(self, logits: FloatArray, token_ids: IntArray, num_top: int) -> LogprobsOutput:
        """Log-probabilities of given tokens [num_rows] and of the ``num_top`` most likely ones."""
        num_rows = len(logits)
        output = no_logprobs(num_rows, num_top)
        output.failed[:] = [not np.isfinite(row).all() for row in logits]
        for row in np.flatnonzero(~output.failed):
            token, row_logits = token_ids[row], logits[row]
            row_logprobs = log_softmax(row_logits)
            top = np.argsort(-row_logits, kind="stable")[:num_top]
            output.logprobs[row] = row_logprobs[token]
            output.ranks[row] = 1 + np.count_nonzero(row_logits > row_logits[token])
            output.top_token_ids[row], output.top_logprobs[row] = top, row_logprobs[top]
        return output


def log_softmax(logits: FloatArray) -> FloatArray:
    """Log-probability of every token [vocab_size]; the sum is float64, and so is all that follows it."""
    largest = logits.max()
    total = np.sum(exp_float32(logits - largest), dtype=np.float64)
    logprobs: FloatArray = (logits - (np.float64(largest) + np.log(total))).astype(np.float32)
    return logprobs


def sample_row(logits: FloatArray, params: SamplingInput, row: int) -> int | None:
    """The token of one row of logits [vocab_size], or ``None`` if the row fails."""
    if not np.isfinite(logits).all():
        return None
    adjusted = adjust_logits(logits, params, row)
    temperature = params.temperature[row]
    if temperature != 0:
        with np.errstate(over="ignore"):
            adjusted /= temperature
    largest = adjusted.max()
    if not np.isfinite(largest):
        return None
    if temperature == 0:
        return int(adjusted.argmax())
    weights = np.where(adjusted == -np.inf, np.float32(0), exp_float32(adjusted - largest))
    kept = keep_candidates(
        weights,
        top_k=int(params.top_k[row]),
        top_p=float(params.top_p[row]),
        min_p=params.min_p[row],
    )
    u = uniform(int(params.seeds[row]), int(params.positions[row]), int(params.choice_indices[row]))
    return draw(weights, kept, u)


def adjust_logits(logits: FloatArray, params: SamplingInput, row: int) -> FloatArray:
    """A copy with the row's bias, penalties, bans and allowed tokens applied, in this order."""
    adjusted = logits.copy()
    biased = slice(params.bias_starts[row], params.bias_starts[row + 1])
    np.add.at(adjusted, params.bias_token_ids[biased], params.bias_values[biased])
    penalty_row = params.penalty_rows[row]
    if penalty_row >= 0:
        counts = params.output_counts[penalty_row]
        seen = (counts > 0) | (params.prompt_tokens[penalty_row] != 0)
        repetition = params.repetition_penalty[row]
        penalized = np.where(adjusted > 0, adjusted / repetition, adjusted * repetition)
        adjusted = np.where(seen, penalized, adjusted)
        adjusted -= counts.astype(np.float32) * params.frequency_penalty[row]
        adjusted -= (counts > 0).astype(np.float32) * params.presence_penalty[row]
    banned = slice(params.banned_starts[row], params.banned_starts[row + 1])
    adjusted[params.banned_token_ids[banned]] = -np.inf
    allowed_row = params.allowed_rows[row]
    if allowed_row >= 0:
        words, token_ids = params.allowed_tokens[allowed_row], np.arange(len(adjusted))
        adjusted[(words[token_ids // 32] >> (token_ids % 32)) & 1 == 0] = -np.inf
    return adjusted


def keep_candidates(
    weights: FloatArray,  # [vocab_size], the largest is 1; 0: no candidate
    *,
    top_k: int,
    top_p: float,
    min_p: float | np.float32,
) -> npt.NDArray[np.bool_]:
    """Which tokens may be drawn [vocab_size], after min-p, then top-k, then top-p."""
    candidates = np.flatnonzero((weights > 0) & (weights >= min_p))
    candidates = candidates[np.argsort(-weights[candidates], kind="stable")]  # descending, ties by id
    if top_k > 0:
        candidates = candidates[:top_k]
    if top_p < 1:
        total = np.cumsum(weights[np.sort(candidates)], dtype=np.float64)[-1]  # as every total, by id
        sums = np.cumsum(weights[candidates], dtype=np.float64)
        candidates = candidates[: 1 + np.searchsorted(sums, top_p * total, side="left")]
    kept = np.zeros(len(weights), np.bool_)
    kept[candidates] = True
    return kept


def draw(weights: FloatArray, kept: npt.NDArray[np.bool_], u: float) -> int:
    """The first kept token, by ascending id, whose running float64 sum of weights exceeds ``u`` · total."""
    token_ids = np.flatnonzero(kept)
    sums = np.cumsum(weights[token_ids], dtype=np.float64)
    return int(token_ids[np.searchsorted(sums, u * sums[-1], side="right")])
