"""Same bits for every architecture, through the whole engine: cold and warm, alone and in a batch, chunked,
beside requests with LoRA adapters.

`test_same_bits` has many more settings, for llama alone.
"""

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from lora_adapters import lora_tensors_of, write_lora

from octavo import LLM, LoRARequest, RequestOutput, SamplingParams

SAMPLED = SamplingParams(temperature=0.8, seed=7, max_tokens=12, ignore_eos=True, logprobs=4)
PROMPTS = [[3 + (7 * i + j * j) % 270 for j in range(20 + 9 * i)] for i in range(4)]


def bits_of(output: RequestOutput) -> tuple[object, ...]:
    """Tokens and log-probabilities, which must not change by one bit."""
    [choice] = output.outputs
    assert choice.error is None
    assert choice.logprobs
    entries = [[(token, lp.logprob, lp.rank) for token, lp in entry.items()] for entry in choice.logprobs]
    return tuple(choice.token_ids), str(entries)


@pytest.fixture(scope="module", params=["float16", "int8"])
def engine(request: pytest.FixtureRequest, tiny_architecture: Path) -> Callable[..., LLM]:
    """Makes engines with a cache of one number format."""
    config = json.loads((tiny_architecture / "config.json").read_text(encoding="utf-8"))
    if request.param == "int8" and config["head_dim"] % 16:
        pytest.skip(f"heads of {config['head_dim']}: an int8 cache needs a multiple of 16")
    sizes = {"num_threads": 2, "max_model_len": 128, "kv_cache_memory": "4MiB"}
    return partial(LLM, str(tiny_architecture), kernels="native", kv_dtype=request.param, **sizes)


@pytest.fixture(scope="module")
def alone(engine: Callable[..., LLM]) -> list[tuple[object, ...]]:
    """Each prompt on an engine that has seen nothing like it, in one piece."""
    with engine(enable_prefix_caching=False) as llm:
        return [bits_of(llm.generate([{"prompt_token_ids": ids}], SAMPLED)[0]) for ids in PROMPTS]


def test_prompts_give_different_texts(alone):
    assert len({bits[0] for bits in alone}) == len(PROMPTS)


def test_in_a_batch_cold_and_warm(engine, alone):
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    with engine() as llm:
        cold, warm = llm.generate(prompts, SAMPLED), llm.generate(prompts, SAMPLED)
    assert [bits_of(output) for output in cold] == alone
    assert [bits_of(output) for output in warm] == alone
    assert all(output.num_cached_tokens for output in warm)


@pytest.mark.parametrize("budget", [5, 16])
def test_chunked(engine, alone, budget):
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    with engine(max_num_batched_tokens=budget, max_num_seqs=4) as llm:
        assert [bits_of(output) for output in llm.generate(prompts, SAMPLED)] == alone


def test_beside_requests_that_report_on_their_prompts(engine, alone):
    """Then no row leaves a step early, as rows without logits do otherwise."""
    reporting = dataclasses.replace(SAMPLED, prompt_logprobs=1)
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    with engine(max_num_batched_tokens=16, max_num_seqs=4) as llm:
        outputs = llm.generate(prompts, [SAMPLED, reporting, SAMPLED, reporting])
    assert [bits_of(output) for output in outputs] == alone


def test_beside_requests_with_adapters(tiny_architecture, engine, alone, tmp_path):
    loras = [
        LoRARequest(
            name, lora_path=str(write_lora(tmp_path / name, lora_tensors_of(tiny_architecture, rank=rank)))
        )
        for name, rank in (("narrow", 3), ("wide", 17))
    ]
    prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
    choices = [loras[0], loras[1], loras[1], loras[0]]
    with engine(enable_prefix_caching=False) as llm:
        adapted = [
            bits_of(llm.generate([prompt], SAMPLED, lora_request=lora)[0])
            for prompt, lora in zip(prompts, choices, strict=True)
        ]
    assert not set(adapted) & set(alone)
    named = tuple(f"{lora.lora_name}={lora.lora_path}" for lora in loras)
    with engine(max_num_batched_tokens=48, lora=named) as llm:
        outputs = llm.generate([*prompts, *prompts], SAMPLED, lora_request=[None] * 4 + choices)
    assert [bits_of(output) for output in outputs] == [*alone, *adapted]
