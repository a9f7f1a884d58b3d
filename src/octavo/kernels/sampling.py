"""The step between logits and token: plain arrays in, plain arrays out (arithmetic: ADR 0001)."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from octavo.kernels.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingInput:
    """How each row of logits becomes a token. Arrays are C-contiguous, one entry per row unless said."""

    temperature: FloatArray
    """[num_rows]; 0 is greedy."""
    top_k: IntArray
    """[num_rows]; 0 keeps all."""
    top_p: FloatArray
    min_p: FloatArray
    seeds: npt.NDArray[np.uint64]
    choice_indices: IntArray
    positions: IntArray
    """[num_rows]; position that the sampled token will have in its sequence: the generator's counter."""
    repetition_penalty: FloatArray
    frequency_penalty: FloatArray
    presence_penalty: FloatArray
    penalty_rows: IntArray
    """[num_rows]; the row's index into the two arrays below, or -1 if it has no penalties."""
    output_counts: IntArray
    """[num_penalty_rows, vocab_size]; how often each token was generated."""
    prompt_tokens: npt.NDArray[np.uint8]
    """[num_penalty_rows, vocab_size]; 1 where the token is in the prompt."""
    bias_starts: IntArray
    """[num_rows + 1]; row r owns bias entries ``bias_starts[r] … bias_starts[r + 1] - 1``."""
    bias_token_ids: IntArray
    bias_values: FloatArray
    banned_starts: IntArray
    """[num_rows + 1]; tokens that may not be sampled now (stop tokens before the minimum length)."""
    banned_token_ids: IntArray
    allowed_rows: IntArray
    """[num_rows]; the row's index into the array below, or -1 if every token may be sampled."""
    allowed_tokens: npt.NDArray[np.uint32]
    """[num_allowed_rows, `allowed_words`]; bit ``t % 32`` of word ``t // 32`` is set if token t may be."""
    num_top_logprobs: int | None = 0
    """Most likely tokens to report per row, 0 … 20; the same for all rows, the caller cuts. ``None``: nobody
    wants log-probabilities, not even of the row's token; those are NaN then, and ranks 0."""


def allowed_words(vocab_size: int) -> int:
    """32-bit words of one row of `SamplingInput.allowed_tokens`."""
    return -(-vocab_size // 32)


class LogprobsOutput(NamedTuple):
    """Log-probabilities under the raw logits: before bias, penalties and temperature."""

    logprobs: FloatArray
    """[num_rows]; of the row's token."""
    ranks: IntArray
    """[num_rows]; 1 + the number of tokens with a larger logit."""
    top_token_ids: IntArray
    """[num_rows, num_top]; descending logit, ties by ascending id."""
    top_logprobs: FloatArray
    """[num_rows, num_top]"""
    failed: npt.NDArray[np.bool_]
    """[num_rows]; the row has a NaN or an infinite logit, so none of its numbers mean anything."""


def no_logprobs(num_rows: int, num_top: int = 0) -> LogprobsOutput:
    """What stands where there is no number: NaN, and 0 for ranks and ids; no row has failed."""
    return LogprobsOutput(
        logprobs=np.full(num_rows, np.nan, np.float32),
        ranks=np.zeros(num_rows, np.int32),
        top_token_ids=np.zeros((num_rows, num_top), np.int32),
        top_logprobs=np.full((num_rows, num_top), np.nan, np.float32),
        failed=np.zeros(num_rows, np.bool_),
    )


class SamplingOutput(NamedTuple):
    """One token per row, and its log-probabilities."""

    token_ids: IntArray
    """[num_rows]"""
    logprobs: LogprobsOutput


class Sampler(Protocol):
    """Samples a batch of rows; a row's result depends on nothing but that row."""

    def sample(self, logits: FloatArray, sampling_input: SamplingInput) -> SamplingOutput:
        """Choose a token for each row of ``logits`` [num_rows, vocab_size], which is not changed."""
        ...

    def logprobs(self, logits: FloatArray, token_ids: IntArray, num_top: int) -> LogprobsOutput:
        """Log-probabilities of given tokens [num_rows] (prompt log-probabilities)."""
        ...
