"""Same bits for every architecture, through the whole engine: cold and warm, alone and in a batch, chunked.

`test_same_bits` has many more settings, for llama alone.
"""

from pathlib import Path

import pytest

from octavo import LLM, RequestOutput, SamplingParams

SAMPLED = SamplingParams(temperature=0.8, seed=7, max_tokens=12, ignore_eos=True, logprobs=4)
PROMPTS = [[3 + (7 * i + j * j) % 270 for j in range(20 + 9 * i)] for i in range(4)]


def bits_of(output: RequestOutput) -> tuple[object, ...]:
    """Tokens and log-probabilities, which must not change by one bit."""
    [choice] = output.outputs
    assert choice.error is None
    assert choice.logprobs
    entries = [[(token, lp.logprob, lp.rank) for token, lp in entry.items()] for entry in choice.logprobs]
    return tuple(choice.token_ids), str(entries)


def engine(path: Path, **options: object) -> LLM:
    defaults = {"kernels": "native", "num_threads": 2, "max_model_len": 128, "kv_cache_memory": "4MiB"}
    return LLM(str(path), **{**defaults, **options})


@pytest.fixture(scope="module")
def alone(tiny_architecture: Path) -> list[tuple[object, ...]]:
    """Each prompt on an engine that has seen nothing like it, in one piece."""
    with engine(tiny_architecture, enable_prefix_caching=False) as llm:
        return [bits_of(llm.generate([{"prompt_token_ids": ids}], SAMPLED)[0]) for ids in PROMPTS]


def test_prompts_give_different_texts(alone):
    assert len({bits[0] for bits in alone}) == len(PROMPTS)


def test_in_a_batch_cold_and_warm(tiny_architecture, alone):
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    with engine(tiny_architecture) as llm:
        cold, warm = llm.generate(prompts, SAMPLED), llm.generate(prompts, SAMPLED)
    assert [bits_of(output) for output in cold] == alone
    assert [bits_of(output) for output in warm] == alone
    assert all(output.num_cached_tokens for output in warm)


@pytest.mark.parametrize("budget", [5, 16])
def test_chunked(tiny_architecture, alone, budget):
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    with engine(tiny_architecture, max_num_batched_tokens=budget, max_num_seqs=4) as llm:
        assert [bits_of(output) for output in llm.generate(prompts, SAMPLED)] == alone
