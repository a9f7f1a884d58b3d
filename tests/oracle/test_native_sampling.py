"""The native sampler: the reference's tokens, and the same bits whatever surrounds a row."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from harness.op_cases import NO_CACHE
from harness.sampling_cases import (
    check_logprobs,
    check_sampler,
    random_logits,
    random_sampling_input,
    sampling_input,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import EngineError
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.native_sampler import NativeSampler
from octavo.kernels.philox import uniform
from octavo.kernels.program import Program
from octavo.kernels.reference_exp import exp_float32
from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.kernels.sampling import SamplingInput, SamplingOutput
from octavo.kernels.select import available_isas

ISAS = available_isas()
ROW_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seeds",
    "choice_indices",
    "positions",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "penalty_rows",
    "allowed_rows",
)

vocab_sizes = st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 200, 1025])


@pytest.fixture(scope="module")
def samplers() -> Iterator[dict[tuple[str, int], NativeSampler]]:
    """By instruction set and number of threads."""
    interpreters = {
        (isa, num_threads): NativeInterpreter(
            Program(), NO_CACHE, 1, max_num_tokens=1, max_logit_rows=1, isa=isa, num_threads=num_threads
        )
        for isa in ISAS
        for num_threads in (1, 2, 3)
    }
    yield {key: interpreter.sampler for key, interpreter in interpreters.items()}
    for interpreter in interpreters.values():
        interpreter.close()


@pytest.fixture(scope="module")
def sampler(samplers) -> NativeSampler:
    return samplers[ISAS[0], 2]


def assert_same_bits(got: SamplingOutput, want: SamplingOutput) -> None:
    """NaNs included."""
    assert got.token_ids.tobytes() == want.token_ids.tobytes()
    for name in want.logprobs._fields:
        got_bytes, want_bytes = (getattr(output.logprobs, name).tobytes() for output in (got, want))
        assert got_bytes == want_bytes, name


def only_row(params: SamplingInput, row: int) -> SamplingInput:
    """The input of one row alone."""
    bias = slice(params.bias_starts[row], params.bias_starts[row + 1])
    banned = slice(params.banned_starts[row], params.banned_starts[row + 1])
    return replace(
        params,
        **{name: getattr(params, name)[row : row + 1] for name in ROW_FIELDS},
        bias_starts=np.array([0, bias.stop - bias.start], np.int32),
        bias_token_ids=params.bias_token_ids[bias],
        bias_values=params.bias_values[bias],
        banned_starts=np.array([0, banned.stop - banned.start], np.int32),
        banned_token_ids=params.banned_token_ids[banned],
    )


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), vocab_size=vocab_sizes, num_top=st.integers(0, 20))
def test_tokens_and_logprobs_of_the_reference(samplers, isa, seed, vocab_size, num_top):
    rng = np.random.default_rng(seed)
    logits = random_logits(rng, 6, vocab_size)
    params = random_sampling_input(rng, 6, vocab_size, num_top_logprobs=min(num_top, vocab_size))
    check_sampler(samplers[isa, 2], logits, params)


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_a_large_vocabulary(sampler, spread):
    """From nearly uniform, where the cuts keep most tokens, to peaked, where they keep a few."""
    rng = np.random.default_rng(0)
    logits = (spread * rng.normal(0, 1, (12, 20_000))).astype(np.float32)
    check_sampler(sampler, logits, random_sampling_input(rng, 12, 20_000, num_top_logprobs=20))


def candidates_by_sorting(weights: np.ndarray, *, top_k: int, top_p: float) -> np.ndarray:
    """Ids that the cuts leave, ascending; every sum is float64, one candidate after the other."""
    order = np.argsort(-weights, kind="stable")
    order = order[weights[order] > 0]
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        total = np.cumsum(weights[np.sort(order)], dtype=np.float64)[-1]
        running = np.cumsum(weights[order], dtype=np.float64)
        order = order[: np.searchsorted(running, np.float64(np.float32(top_p)) * total) + 1]
    return np.sort(order)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 3.0, 12.0])
@pytest.mark.parametrize(
    "cuts",
    [
        {"top_p": 0.3},
        {"top_p": 0.9},
        {"top_p": 0.9999},
        {"top_p": 1 - 2**-24},
        {"top_k": 2000},
        {"top_k": 4000, "top_p": 0.9},
        {"top_k": 1500, "top_p": 0.999},
    ],
)
def test_the_cuts_are_those_of_a_whole_sort(samplers, isa, spread, cuts):
    """The total of what is kept decides which token u draws: a candidate more or less shows in some row."""
    rng = np.random.default_rng(int(100 * spread))
    vocab_size, num_rows = 6000, 24
    row = (spread * rng.normal(0, 1, vocab_size)).astype(np.float32)
    row[rng.integers(0, vocab_size, 300)] = row[:300]  # ties
    weights = exp_float32(row - row.max())
    kept = candidates_by_sorting(weights, top_k=cuts.get("top_k", 0), top_p=cuts.get("top_p", 1.0))
    running = np.cumsum(weights[kept], dtype=np.float64)
    params = sampling_input(num_rows, vocab_size, temperature=1.0, seeds=np.arange(num_rows), **cuts)
    got = samplers[isa, 2].sample(np.tile(row, (num_rows, 1)), params).token_ids
    for token, seed, position in zip(got, params.seeds, params.positions, strict=True):
        wanted = uniform(int(seed), int(position), 0) * running[-1]
        assert token == kept[np.searchsorted(running, wanted, side="right")]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), vocab_size=vocab_sizes, num_rows=st.integers(1, 9))
def test_threads_and_instruction_sets_change_no_bit(samplers, seed, vocab_size, num_rows):
    rng = np.random.default_rng(seed)
    logits = random_logits(rng, num_rows, vocab_size)
    params = random_sampling_input(rng, num_rows, vocab_size, num_top_logprobs=min(3, vocab_size))
    want = samplers["generic", 1].sample(logits, params)
    for sampler in samplers.values():
        assert_same_bits(sampler.sample(logits, params), want)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), vocab_size=vocab_sizes)
def test_a_row_alone_is_the_row_among_others(sampler, seed, vocab_size):
    rng = np.random.default_rng(seed)
    logits = random_logits(rng, 5, vocab_size)
    logits[rng.integers(5), rng.integers(vocab_size)] = np.nan
    params = random_sampling_input(rng, 5, vocab_size, num_top_logprobs=min(3, vocab_size))
    together = sampler.sample(logits, params)
    for row in range(5):
        alone = sampler.sample(logits[row : row + 1], only_row(params, row))
        assert alone.token_ids[0] == together.token_ids[row]
        for name in alone.logprobs._fields:
            got, want = (getattr(output.logprobs, name) for output in (alone, together))
            assert got[0].tobytes() == want[row].tobytes()


def test_greedy_takes_the_first_of_equals(sampler):
    logits = np.zeros((1, 500), np.float32)
    for first in (0, 3, 16, 31, 255, 495):
        logits[:] = -1
        logits[0, first:] = 2.5
        assert sampler.sample(logits, sampling_input(1, 500)).token_ids == [first]


def test_greedy_ignores_the_cuts_and_the_seed(sampler):
    logits = random_logits(np.random.default_rng(0), 4, 300)
    params = sampling_input(4, 300, top_k=[0, 1, 5, 300], top_p=0.1, min_p=0.9, seeds=np.arange(4))
    np.testing.assert_array_equal(sampler.sample(logits, params).token_ids, logits.argmax(axis=1))


def drawn(sampler, logits, num_draws: int, **changed) -> Counter[int]:
    """How often each token came, over `num_draws` positions."""
    rows = np.tile(np.array(logits, np.float32), (num_draws, 1))
    params = sampling_input(num_draws, len(logits), seeds=11, positions=np.arange(num_draws), **changed)
    return Counter(sampler.sample(rows, params).token_ids.tolist())


@pytest.mark.parametrize(
    ("cuts", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 3}, [1, 2, 3]),  # 4 ties with 1 and 3
        ({"top_k": 99}, [0, 1, 2, 3, 4, 5]),
        ({"min_p": 0.5}, [1, 2, 3, 4]),  # half the largest stays
        ({"top_p": 0.4}, [1, 2]),  # 2 and 1 of 2 + 1 + 1 + 1 + 0.5 + 0.5
        ({"top_p": 1e-6}, [2]),
        ({"top_k": 4, "top_p": 0.5}, [1, 2]),  # of 5, not of 6
        ({"top_k": 4, "top_p": 0.5, "min_p": 0.6}, [2]),
        ({"banned": [[2]] * 600, "top_k": 2}, [1, 3]),
        ({"bias": [{5: 9.0}] * 600, "min_p": 0.1}, [5]),
    ],
)
def test_only_candidates_are_drawn(sampler, cuts, kept):
    """Weights 0.5, 1, 2, 1, 1, 0.5: min-p, then top-k, then top-p, ties by ascending id."""
    logits = np.log([0.5, 1, 2, 1, 1, 0.5])
    assert sorted(drawn(sampler, logits, 600, temperature=1.0, **cuts)) == kept


@pytest.mark.parametrize("cuts", [{}, {"top_k": 40}, {"top_p": 0.9999}, {"min_p": 1e-4}])
def test_draws_are_distributed_as_the_probabilities(sampler, cuts):
    """Chi-square over 40 tokens: 39 degrees of freedom, 72 is exceeded once in a thousand."""
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 1, 40).astype(np.float32)
    weights = np.exp(logits.astype(np.float64) / 1.3)
    counts = drawn(sampler, logits, 20_000, temperature=1.3, **cuts)
    expected = 20_000 * weights / weights.sum()
    observed = np.array([counts[token] for token in range(40)])
    assert ((observed - expected) ** 2 / expected).sum() < 72


def test_choices_draw_independently_and_repeat_exactly(sampler):
    logits = np.zeros((64, 1000), np.float32)
    params = sampling_input(64, 1000, temperature=1.0, seeds=3, choice_indices=np.arange(64) % 32)
    tokens = sampler.sample(logits, params).token_ids
    np.testing.assert_array_equal(tokens[:32], tokens[32:])
    assert len(set(tokens.tolist())) > 24


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nobody_has_to_want_logprobs(sampler, temperature):
    logits = random_logits(np.random.default_rng(0), 4, 65)
    logits[2, 40] = np.nan
    params = sampling_input(4, 65, temperature=temperature, seeds=[1, 2, 3, 4])
    want = sampler.sample(logits, params)
    for each in (sampler, ReferenceSampler()):
        got = each.sample(logits, replace(params, num_top_logprobs=None))
        np.testing.assert_array_equal(got.token_ids, want.token_ids)
        assert got.logprobs.failed.tolist() == [False, False, True, False]
        assert np.isnan(got.logprobs.logprobs).all()
        assert not got.logprobs.ranks.any()


def test_an_input_may_come_again_with_other_numbers(sampler):
    logits = random_logits(np.random.default_rng(0), 2, 1025)
    params = sampling_input(2, 1025, temperature=1.0, positions=[0, 0])
    for position in range(5):
        params.positions[:] = position
        fresh = sampling_input(2, 1025, temperature=1.0, positions=[position, position])
        got, want = sampler.sample(logits, params), sampler.sample(logits, fresh)
        np.testing.assert_array_equal(got.token_ids, want.token_ids)
    wide = replace(params, positions=np.zeros(2, np.int64))  # a type that has to be copied
    first = sampler.sample(logits, wide).token_ids
    wide.positions[:] = 4
    assert sampler.sample(logits, wide).token_ids.tolist() == got.token_ids.tolist() != first.tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40, 64])
def test_a_row_that_is_not_finite_fails_alone(sampler, bad, temperature, place):
    logits = random_logits(np.random.default_rng(0), 3, 65)
    params = sampling_input(3, 65, temperature=temperature, top_k=1, num_top_logprobs=2)
    want = sampler.sample(logits, params)
    logits[1, place] = bad
    got = sampler.sample(logits, params)
    assert got.logprobs.failed.tolist() == [False, True, False]
    np.testing.assert_array_equal(got.token_ids[[0, 2]], want.token_ids[[0, 2]])
    assert 0 <= got.token_ids[1] < 65


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("cuts", [{}, {"top_k": 1}, {"top_p": 0.5}])
def test_a_row_without_candidates_fails(sampler, temperature, cuts):
    params = sampling_input(2, 3, temperature=temperature, banned=[[0, 1, 2], [0, 2]], **cuts)
    output = sampler.sample(np.zeros((2, 3), np.float32), params)
    assert output.logprobs.failed.tolist() == [True, False]
    assert output.token_ids[1] == 1


def test_a_temperature_that_overflows_fails(sampler):
    logits = np.array([[1, 2]], np.float32)
    for cuts in ({}, {"top_k": 1}, {"top_p": 0.5}):
        assert sampler.sample(logits, sampling_input(1, 2, temperature=1e-45, **cuts)).logprobs.failed.all()


@pytest.mark.parametrize("vocab_size", [1, 20, 100, 5000])
def test_logprobs_of_given_tokens(sampler, vocab_size):
    rng = np.random.default_rng(vocab_size)
    logits = random_logits(rng, 7, vocab_size)
    logits[3, 0] = np.inf
    token_ids = rng.integers(0, vocab_size, 7).astype(np.int32)
    num_top = min(20, vocab_size)
    got = sampler.logprobs(logits, token_ids, num_top)
    check_logprobs(got, ReferenceSampler().logprobs(logits, token_ids, num_top))


def test_logprobs_of_given_tokens_are_those_of_sampling(sampler):
    rng = np.random.default_rng(0)
    logits = random_logits(rng, 8, 100)
    sampled = sampler.sample(logits, random_sampling_input(rng, 8, 100, num_top_logprobs=5))
    sound = ~sampled.logprobs.failed
    given_tokens = sampler.logprobs(logits[sound], sampled.token_ids[sound], 5)
    for name in given_tokens._fields:
        want = getattr(sampled.logprobs, name)[sound]
        assert getattr(given_tokens, name).tobytes() == want.tobytes()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_allowed_tokens_are_sampled_and_all_of_them_can_be(sampler, temperature):
    """Whatever the logits say; log-probabilities stay those of the model."""
    vocab_size, allowed_ids = 70, [0, 31, 32, 69]
    allowed = np.isin(np.arange(vocab_size), allowed_ids)[None]
    num_rows = 200
    logits = np.zeros((num_rows, vocab_size), np.float32)
    logits[:, 5] = 40.0
    logits[np.arange(num_rows), np.resize(allowed_ids, num_rows)] += 0.5
    params = sampling_input(
        num_rows, vocab_size, temperature=temperature, seeds=range(num_rows), allowed_rows=0, allowed=allowed
    )
    output = sampler.sample(logits, params)
    assert set(output.token_ids.tolist()) == set(allowed_ids)
    assert output.logprobs.logprobs.max() < -39
    nothing = sampling_input(1, vocab_size, allowed_rows=0, allowed=np.zeros((1, vocab_size)))
    assert sampler.sample(logits[:1], nothing).logprobs.failed.tolist() == [True]


def test_rows_of_allowed_tokens_that_are_not_there_are_refused(sampler):
    params = sampling_input(1, 40, allowed_rows=1, allowed=np.ones((1, 40)))
    with pytest.raises(EngineError, match="allowed tokens"):
        sampler.sample(np.zeros((1, 40), np.float32), params)
    with pytest.raises(ValueError, match="allowed_tokens must have shape"):
        sampler.sample(np.zeros((1, 64 + 1), np.float32), replace(params, allowed_rows=np.zeros(1, np.int32)))
