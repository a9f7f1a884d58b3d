import random
from dataclasses import replace

import pytest

from octavo.bench.workloads import BD8, W1, W2, W3, W4, WORKLOADS, find_workload
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    ("workload", "num_requests", "length", "output_tokens"),
    [(W1, 32, 256, 128), (W2, 32, 1056, 64), (W3, 1, 32, 128), (W4, 1, 2048, 1), (BD8, 8, 256, 128)],
)
def test_sizes(workload, num_requests, length, output_tokens):
    prompts = workload.prompts(0)
    assert len(prompts) == num_requests
    assert {len(prompt) for prompt in prompts} == {length}
    assert workload.output_tokens == output_tokens


def test_repetitions_are_reproducible_and_differ():
    for workload in WORKLOADS.values():
        assert workload.prompts(3) == workload.prompts(3)
        assert workload.prompts(3)[0][:16] != workload.prompts(4)[0][:16]


def test_only_w2_shares_a_prefix():
    shared = {tuple(prompt[:1024]) for prompt in W2.prompts(1)}
    assert len(shared) == 1
    assert len({tuple(prompt[1024:]) for prompt in W2.prompts(1)}) == 32
    assert len({tuple(prompt[:16]) for prompt in W1.prompts(1)}) == 32


def test_tokens_come_from_the_published_seeds():
    rng = random.Random(60_208)  # the third repetition of eight requests
    assert BD8.prompts(2)[0] == [rng.randrange(1_000, 48_000) for _ in range(256)]


def test_a_small_vocabulary_has_all_tokens():
    tokens = [token for prompt in W1.prompts(0, vocab_size=300) for token in prompt]
    assert min(tokens) >= 150
    assert max(tokens) < 300


def test_the_size_in_words():
    assert W2.size == "32 requests × 1,024 shared + 32 prompt → 64 output tokens"
    assert W3.size == "1 request × 32 prompt → 128 output tokens"


def test_names_and_sizes_are_checked():
    with pytest.raises(ConfigError, match="there are W1, W2"):
        find_workload("W9")
    with pytest.raises(ConfigError, match="output_tokens must be at least 1, got 0"):
        replace(W1, output_tokens=0)
