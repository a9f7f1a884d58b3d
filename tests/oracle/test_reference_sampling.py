"""The sampler against its definition, told once more over lists of Python floats."""

import math
from collections import Counter

import numpy as np
import pytest
from harness.sampling_cases import (
    check_logprobs,
    check_sampler,
    random_logits,
    random_sampling_input,
    sampling_input,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.philox import philox4x32, uniform
from octavo.kernels.reference_exp import exp_float32
from octavo.kernels.reference_sampling import ReferenceSampler, draw, keep_candidates, sample_row

LN_2 = math.log(2)


def sample(logits, **params):
    rows = np.atleast_2d(np.array(logits, np.float32))
    return ReferenceSampler().sample(rows, sampling_input(*rows.shape, **params))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
            (0xFFFFFFFF, 0xFFFFFFFF),
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_words_its_authors_published(counter, key, words):
    assert philox4x32(counter, key) == words


def test_uniform_depends_on_each_of_seed_position_and_choice():
    numbers = {
        uniform(seed, position, choice)
        for seed in (0, 1, 2**32, 2**64 - 1)
        for position in range(4)
        for choice in range(4)
    }
    assert len(numbers) == 64
    assert all(0 <= u < 1 for u in numbers)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(-87, 88, width=32), min_size=1, max_size=50))
def test_exp_is_right_to_the_last_bits(values):
    x = np.array(values, np.float32)
    np.testing.assert_allclose(exp_float32(x), np.exp(x.astype(np.float64)), rtol=2e-7)


def test_exp_of_zero_is_one_and_the_ends_are_finite():
    got = exp_float32(np.array([0, -np.inf, np.inf, np.nan], np.float32))
    assert got[0] == 1
    assert 0 < got[1] < 2e-38
    assert 1e38 < got[2] < np.inf
    assert np.isnan(got[3])


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32), vocab_size=st.integers(1, 40))
def test_tokens_follow_the_definition(seed, vocab_size):
    rng = np.random.default_rng(seed)
    logits = random_logits(rng, 6, vocab_size)
    params = random_sampling_input(rng, 6, vocab_size)
    output = ReferenceSampler().sample(logits, params)
    for row in range(6):
        want = _naive_sample(logits[row], params, row)
        assert output.logprobs.failed[row] == (want is None)
        assert want is None or output.token_ids[row] == want


def _naive_sample(logits, params, row):
    z = [float(value) for value in _naive_adjusted(logits, params, row)]
    temperature = params.temperature[row]
    if max(z) == -math.inf:
        return None
    if temperature == 0:
        return z.index(max(z))
    z = [float(np.float32(value) / temperature) for value in z]
    weights = {
        token: float(exp_float32(np.array([np.float32(value) - np.float32(max(z))], np.float32))[0])
        for token, value in enumerate(z)
        if value != -math.inf
    }
    order = sorted(weights, key=lambda token: (-weights[token], token))
    order = [token for token in order if weights[token] >= params.min_p[row]]
    if params.top_k[row] > 0:
        order = order[: params.top_k[row]]
    order = _naive_top_p(order, weights, float(params.top_p[row]))
    total, threshold = 0.0, uniform(*map(int, _generator_key(params, row)))
    threshold *= sum(weights[token] for token in sorted(order))
    for token in sorted(order):
        total += weights[token]
        if total > threshold:
            return token
    raise AssertionError("u is below 1, so the total must exceed it")


def _generator_key(params, row):
    return params.seeds[row], params.positions[row], params.choice_indices[row]


def _naive_top_p(order, weights, top_p):
    if top_p >= 1:
        return order
    total, all_weights = 0.0, sum(weights[token] for token in order)
    for count, token in enumerate(order, start=1):
        total += weights[token]
        if total >= top_p * all_weights:
            return order[:count]
    return order


def _naive_adjusted(logits, params, row):
    z = list(logits)  # numpy float32 scalars: every operation rounds as the definition wants
    for i in range(params.bias_starts[row], params.bias_starts[row + 1]):
        z[params.bias_token_ids[i]] += params.bias_values[i]
    penalty_row = params.penalty_rows[row]
    for token in range(len(z)) if penalty_row >= 0 else ():
        count = np.float32(params.output_counts[penalty_row, token])
        if count or params.prompt_tokens[penalty_row, token]:
            repetition = params.repetition_penalty[row]
            z[token] = z[token] / repetition if z[token] > 0 else z[token] * repetition
        z[token] -= count * params.frequency_penalty[row]
        z[token] -= params.presence_penalty[row] if count else np.float32(0)
    for i in range(params.banned_starts[row], params.banned_starts[row + 1]):
        z[params.banned_token_ids[i]] = np.float32(-np.inf)
    allowed_row = params.allowed_rows[row]
    for token in range(len(z)) if allowed_row >= 0 else ():
        if not int(params.allowed_tokens[allowed_row, token // 32]) >> token % 32 & 1:
            z[token] = np.float32(-np.inf)
    return z


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), vocab_size=st.integers(2, 60), num_top=st.integers(0, 2))
def test_a_row_depends_on_nothing_but_itself(seed, vocab_size, num_top):
    rng = np.random.default_rng(seed)
    logits = random_logits(rng, 5, vocab_size)
    params = random_sampling_input(rng, 5, vocab_size, num_top_logprobs=num_top)
    check_sampler(ReferenceSampler(), logits, params)  # and the logits are left alone
    together = ReferenceSampler().sample(logits, params).token_ids
    alone = [sample_row(row, params, index) or 0 for index, row in enumerate(logits)]
    np.testing.assert_array_equal(together, alone)


def test_greedy_takes_the_first_of_equals():
    assert sample([1, 3, 3, 2]).token_ids == [1]


def test_penalties_bias_and_bans_act_before_greedy():
    counts = [[0, 2, 0, 0]]
    seen = [[0, 0, 1, 0]]
    penalized = {"penalty_rows": [0], "output_counts": counts, "prompt_tokens": seen}
    logits = [1.0, 4.0, 3.0, -1.0]
    assert sample(logits, frequency_penalty=0.6, **penalized).token_ids == [2]  # 4 - 2 · 0.6 < 3
    assert sample(logits, presence_penalty=0.9, **penalized).token_ids == [1]  # 4 - 0.9 > 3
    assert sample(logits, repetition_penalty=5.0, **penalized).token_ids == [0]  # 4/5, 3/5
    assert sample(logits, bias=[{3: 5.5}]).token_ids == [3]
    assert sample(logits, bias=[{3: 5.5}], banned=[[3]]).token_ids == [1]


def test_repetition_multiplies_what_is_not_positive():
    penalized = {"penalty_rows": [0], "output_counts": [[1, 0]], "repetition_penalty": 2.0}
    assert sample([-1.0, -1.5], **penalized).token_ids == [1]  # -2 < -1.5


@pytest.mark.parametrize(
    ("settings_", "kept"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.25}, [1, 2, 3, 4]),  # 0.25 itself stays
        ({"top_k": 2}, [2, 3]),
        ({"top_k": 4}, [1, 2, 3, 4]),
        ({"top_k": 3}, [1, 2, 3]),  # 1 and 4 tie: the lower id stays
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.4}, [2]),  # 1 of 2.125 is enough
        ({"top_p": 0.5}, [2, 3]),
        ({"top_p": 1e-9}, [2]),
        ({"top_p": 0.5, "top_k": 1}, [2]),
    ],
)
def test_candidates(settings_, kept):
    weights = np.array([0.125, 0.25, 1, 0.5, 0.25], np.float32)
    mask = keep_candidates(weights, **{"top_k": 0, "top_p": 1.0, "min_p": 0.0} | settings_)
    assert np.flatnonzero(mask).tolist() == kept


def test_a_sum_that_just_reaches_top_p_is_enough():
    weights = np.array([0.5, 1, 0.25, 0.25], np.float32)
    mask = keep_candidates(weights, top_k=0, top_p=0.5, min_p=0.0)  # 1 of 2
    assert np.flatnonzero(mask).tolist() == [1]


@pytest.mark.parametrize(("u", "token"), [(0.0, 1), (0.49, 1), (0.5, 3), (1 - 2**-53, 3)])
def test_the_running_sum_must_exceed_the_threshold(u, token):
    kept = np.array([False, True, False, True])
    assert draw(np.ones(4, np.float32), kept, u) == token


def test_draws_are_distributed_as_the_probabilities():
    logits = np.tile(np.array([0, LN_2, 2 * LN_2], np.float32), (4000, 1))  # 1 : 2 : 4
    params = sampling_input(4000, 3, temperature=1.0, seeds=7, positions=np.arange(4000))
    counts = Counter(ReferenceSampler().sample(logits, params).token_ids.tolist())
    for token, weight in enumerate((1, 2, 4)):
        assert abs(counts[token] / 4000 - weight / 7) < 0.03


def test_the_same_seed_and_position_draw_the_same_token_and_choices_differ():
    logits = np.zeros((64, 1000), np.float32)
    params = sampling_input(64, 1000, temperature=1.0, seeds=3, choice_indices=np.arange(64) % 32)
    tokens = ReferenceSampler().sample(logits, params).token_ids
    np.testing.assert_array_equal(tokens[:32], tokens[32:])
    assert len(set(tokens.tolist())) > 24


def test_temperature_sharpens():
    logits = np.tile(np.array([0, 1], np.float32), (500, 1))
    cold = sampling_input(500, 2, temperature=0.05, positions=np.arange(500))
    assert ReferenceSampler().sample(logits, cold).token_ids.all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_fails_alone(bad, temperature):
    logits = [[1, 2, 3], [1, bad, 3], [3, 2, 1]]
    output = sample(logits, temperature=temperature, top_k=1, num_top_logprobs=2)
    assert output.logprobs.failed.tolist() == [False, True, False]
    assert output.token_ids[[0, 2]].tolist() == [2, 0]
    assert np.isfinite(output.logprobs.top_logprobs[[0, 2]]).all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_candidates_fails(temperature):
    output = sample([[1, 2], [1, 2]], temperature=temperature, top_k=1, banned=[[0, 1], [0]])
    assert output.logprobs.failed.tolist() == [True, False]
    assert output.token_ids[1] == 1


def test_a_temperature_that_overflows_fails():
    assert sample([1, 2], temperature=1e-45).logprobs.failed.all()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), vocab_size=st.integers(4, 40))
def test_logprobs_are_of_the_raw_logits(seed, vocab_size):
    rng = np.random.default_rng(seed)
    logits = random_logits(rng, 3, vocab_size)
    params = random_sampling_input(rng, 3, vocab_size, num_top_logprobs=4)
    output = ReferenceSampler().sample(logits, params)
    for row in np.flatnonzero(~output.logprobs.failed):
        z = logits[row].astype(float).tolist()
        logprobs = [value - math.log(math.fsum(map(math.exp, z))) for value in z]
        token = output.token_ids[row]
        assert output.logprobs.logprobs[row] == pytest.approx(logprobs[token], abs=1e-6)
        assert output.logprobs.ranks[row] == 1 + sum(value > z[token] for value in z)
        top = sorted(range(vocab_size), key=lambda i: (-z[i], i))[:4]
        assert output.logprobs.top_token_ids[row].tolist() == top
        assert output.logprobs.top_logprobs[row] == pytest.approx([logprobs[i] for i in top], abs=1e-6)


def test_logprobs_of_given_tokens_are_those_of_sampling():
    rng = np.random.default_rng(0)
    logits = random_logits(rng, 8, 100)
    sampled = ReferenceSampler().sample(logits, random_sampling_input(rng, 8, 100, num_top_logprobs=5))
    check_logprobs(ReferenceSampler().logprobs(logits, sampled.token_ids, 5), sampled.logprobs)
