"""Inputs of a sampler, and the comparison of two."""

from collections.abc import Sequence

import numpy as np

from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.kernels.sampling import LogprobsOutput, Sampler, SamplingInput


def sampling_input(num_rows: int, vocab_size: int, **changed) -> SamplingInput:
    """Greedy rows without penalties, except for what is given; a scalar serves all rows.

    ``bias`` and ``banned`` are sequences with one entry per row: {token id: bias} and [token ids];
    ``allowed`` [num_allowed_rows, vocab_size] says for each of ``allowed_rows`` which tokens are.
    """
    bias: Sequence[dict[int, float]] = changed.pop("bias", [{}] * num_rows)
    banned: Sequence[Sequence[int]] = changed.pop("banned", [()] * num_rows)
    per_row = {
        "temperature": (0.0, np.float32),
        "top_k": (0, np.int32),
        "top_p": (1.0, np.float32),
        "min_p": (0.0, np.float32),
        "seeds": (0, np.uint64),
        "choice_indices": (0, np.int32),
        "positions": (0, np.int32),
        "repetition_penalty": (1.0, np.float32),
        "frequency_penalty": (0.0, np.float32),
        "presence_penalty": (0.0, np.float32),
        "penalty_rows": (-1, np.int32),
        "allowed_rows": (-1, np.int32),
    }
    arrays = {
        name: np.array(np.broadcast_to(changed.pop(name, default), num_rows), dtype)
        for name, (default, dtype) in per_row.items()
    }
    allowed = np.array(changed.pop("allowed", np.ones((0, vocab_size))), np.bool_)
    counts = changed.pop("output_counts", np.zeros((0, vocab_size)))
    prompt = changed.pop("prompt_tokens", np.zeros((len(counts), vocab_size)))
    return SamplingInput(
        **arrays,
        output_counts=np.array(counts, np.int32),
        prompt_tokens=np.array(prompt, np.uint8),
        bias_starts=_starts(bias),
        bias_token_ids=np.array([token for row in bias for token in row], np.int32),
        bias_values=np.array([value for row in bias for value in row.values()], np.float32),
        banned_starts=_starts(banned),
        banned_token_ids=np.array([token for row in banned for token in row], np.int32),
        allowed_tokens=_words(allowed),
        **changed,
    )


def random_sampling_input(
    rng: np.random.Generator, num_rows: int, vocab_size: int, *, num_top_logprobs: int = 0
) -> SamplingInput:
    """Every setting on about half of the rows, so that all combinations meet."""

    def sometimes(values: np.ndarray, otherwise: float) -> np.ndarray:
        return np.where(rng.random(num_rows) < 0.5, values, otherwise)

    penalized = rng.permutation(num_rows)[: num_rows // 2]
    penalty_rows = np.full(num_rows, -1)
    penalty_rows[penalized] = np.arange(len(penalized))
    shape = (len(penalized), vocab_size)
    masked = rng.permutation(num_rows)[: num_rows // 2]
    allowed_rows = np.full(num_rows, -1)
    allowed_rows[masked] = np.arange(len(masked))
    return sampling_input(
        num_rows,
        vocab_size,
        temperature=sometimes(rng.uniform(0.2, 2, num_rows), 0.0),
        top_k=sometimes(rng.integers(1, vocab_size + 2, num_rows), 0),
        top_p=sometimes(rng.uniform(0.05, 1, num_rows), 1.0),
        min_p=sometimes(rng.uniform(0, 0.3, num_rows), 0.0),
        seeds=rng.integers(0, 2**64, num_rows, np.uint64),
        choice_indices=rng.integers(0, 8, num_rows),
        positions=rng.integers(0, 8192, num_rows),
        repetition_penalty=sometimes(rng.uniform(0.7, 1.5, num_rows), 1.0),
        frequency_penalty=sometimes(rng.uniform(-1, 1, num_rows), 0.0),
        presence_penalty=sometimes(rng.uniform(-1, 1, num_rows), 0.0),
        penalty_rows=penalty_rows,
        output_counts=rng.integers(0, 4, shape) * (rng.random(shape) < 0.2),
        prompt_tokens=rng.random(shape) < 0.2,
        bias=[_random_bias(rng, vocab_size) for _ in range(num_rows)],
        banned=[rng.integers(0, vocab_size, rng.integers(0, 3)).tolist() for _ in range(num_rows)],
        allowed_rows=allowed_rows,
        allowed=rng.random((len(masked), vocab_size)) < rng.choice([0.0, 0.1, 0.5, 1.0], (len(masked), 1)),
        num_top_logprobs=num_top_logprobs,
    )


def random_logits(rng: np.random.Generator, num_rows: int, vocab_size: int) -> np.ndarray:
    """Logits on a grid, so that ties are common [num_rows, vocab_size]."""
    return (np.round(rng.normal(0, 3, (num_rows, vocab_size)) * 4) / 4).astype(np.float32)


def check_sampler(sampler: Sampler, logits: np.ndarray, params: SamplingInput) -> None:
    """Fail unless ``sampler`` chooses the reference's tokens, with its log-probabilities up to rounding."""
    before = logits.copy()
    got, want = sampler.sample(logits, params), ReferenceSampler().sample(logits, params)
    np.testing.assert_array_equal(logits, before, "the logits were changed")
    np.testing.assert_array_equal(got.logprobs.failed, want.logprobs.failed)
    sound = ~want.logprobs.failed
    np.testing.assert_array_equal(got.token_ids[sound], want.token_ids[sound])
    check_logprobs(got.logprobs, want.logprobs)


def check_logprobs(got: LogprobsOutput, want: LogprobsOutput) -> None:
    """Fail unless the rows that did not fail agree: ids and ranks exactly, numbers up to one rounding."""
    sound = ~want.failed
    np.testing.assert_array_equal(got.failed, want.failed)
    np.testing.assert_array_equal(got.ranks[sound], want.ranks[sound])
    np.testing.assert_array_equal(got.top_token_ids[sound], want.top_token_ids[sound])
    np.testing.assert_allclose(got.logprobs[sound], want.logprobs[sound], rtol=2e-7, atol=1e-7)
    np.testing.assert_allclose(got.top_logprobs[sound], want.top_logprobs[sound], rtol=2e-7, atol=1e-7)


def _random_bias(rng: np.random.Generator, vocab_size: int) -> dict[int, float]:
    token_ids = rng.permutation(vocab_size)[: rng.integers(0, 3)]
    return {int(token): float(rng.uniform(-5, 5)) for token in token_ids}


def _words(allowed: np.ndarray) -> np.ndarray:
    """Bits in words of 32 [num_allowed_rows, ceil(vocab_size / 32)]."""
    padding = -allowed.shape[1] % 32
    bits = np.pad(allowed, ((0, 0), (0, padding)))
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)


def _starts(rows: Sequence[Sequence[object] | dict[int, float]]) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)], dtype=np.int32)
