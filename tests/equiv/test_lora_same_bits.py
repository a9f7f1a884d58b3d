"""Requests with and without LoRA adapters: the same bits alone and among any neighbours, cold and warm.

Everything here compares floats with ``==``. Native kernels only, as in test_same_bits.
"""

import pytest
from lora_adapters import lora_tensors, write_lora

from octavo.errors import AdapterError, CapacityError
from octavo.llm import LLM
from octavo.lora_request import LoRARequest
from octavo.sampling_params import SamplingParams

PROMPTS = (
    "the cat the cat the cat ing ous " * 6,
    "a cat",
    "once more " * 20,
    "the cat the cat the cat ing ous " * 6,
)
PARAMS = SamplingParams(temperature=0.8, seed=7, max_tokens=10, logprobs=3, ignore_eos=True)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """Two adapters of different ranks over different modules."""
    folder = tmp_path_factory.mktemp("adapters")
    some = ("self_attn.v_proj", "mlp.gate_proj")
    paths = {
        "all": write_lora(folder / "all", lora_tensors(rank=5)),
        "some": write_lora(folder / "some", lora_tensors(rank=20, seed=1, modules=some)),
    }
    return {name: LoRARequest(name, lora_path=str(path)) for name, path in paths.items()}


def start(path, **options) -> LLM:
    return LLM(
        str(path), **{"kernels": "native", "num_threads": 2, "block_size": 8, "num_blocks": 200, **options}
    )


@pytest.fixture(scope="module", params=["Q8_0", "Q4_1", "F32"])
def path(request, tiny_llama):
    return tiny_llama(quantization=request.param)


def bits(outputs):
    """Tokens and log-probabilities of each request."""
    choices = [output.outputs[0] for output in outputs]
    assert all(choice.error is None and len(choice.token_ids) == 10 for choice in choices)
    return [
        (
            tuple(choice.token_ids),
            tuple((token, entry.logprob) for step in choice.logprobs for token, entry in step.items()),
        )
        for choice in choices
    ]


def run(llm, requests):
    """Bits of (prompt, adapter) pairs, all computed together."""
    prompts, loras = zip(*requests, strict=True)
    return bits(llm.generate(list(prompts), PARAMS, use_tqdm=False, lora_request=list(loras)))


def test_neighbours_chunks_and_caches_change_nothing(path, adapters):
    choices = (None, adapters["all"], adapters["some"], None)
    requests = list(zip(PROMPTS, choices, strict=True))
    requests += [(PROMPTS[0], adapters["some"]), (PROMPTS[0], adapters["all"])]
    with start(path, enable_prefix_caching=False) as llm:
        alone = [run(llm, [request])[0] for request in requests]
    assert len(set(alone)) == 5  # both plain requests with the same prompt are the same; no other two
    with start(path) as llm:
        assert run(llm, requests) == alone
        assert run(llm, list(reversed(requests))) == alone[::-1]  # warm
        assert [run(llm, [request])[0] for request in requests] == alone
    with start(path, max_num_batched_tokens=11, num_threads=1) as llm:
        assert run(llm, requests) == alone
    with start(path, num_blocks=34, max_model_len=250) as llm:  # too few for all: some are preempted
        assert run(llm, requests) == alone


def test_a_model_with_adapters_loaded_is_the_model(path, adapters):
    requests = [(prompt, None) for prompt in PROMPTS]
    with start(path, max_loras=1) as plain:
        without = run(plain, requests)
    with start(path, lora=tuple(f"{name}={lora.lora_path}" for name, lora in adapters.items())) as llm:
        assert run(llm, requests) == without
        adapted = run(llm, [(prompt, LoRARequest("all")) for prompt in PROMPTS])
        assert not set(adapted) & set(without)


def test_a_cached_prefix_belongs_to_one_adapter(path, adapters):
    with start(path) as llm:
        for lora in (None, *adapters.values()):
            first, second = (
                llm.generate(PROMPTS[0], PARAMS, use_tqdm=False, lora_request=lora)[0] for _ in range(2)
            )
            assert (first.num_cached_tokens, second.num_cached_tokens > 0) == (0, True)
            assert bits([first]) == bits([second])


def test_an_adapter_is_unloaded_and_comes_back(path, adapters):
    with start(path, max_loras=1) as llm:
        first = run(llm, [(PROMPTS[0], adapters["all"])])
        with pytest.raises(CapacityError, match="max_loras is 1"):
            llm.generate(PROMPTS[0], PARAMS, use_tqdm=False, lora_request=adapters["some"])
        llm.remove_lora("all")
        with pytest.raises(AdapterError, match="there is no adapter 'all'"):
            llm.generate(PROMPTS[0], PARAMS, use_tqdm=False, lora_request=LoRARequest("all"))
        assert run(llm, [(PROMPTS[0], adapters["some"])]) != first
        llm.remove_lora("some")
        assert llm.add_lora(adapters["all"])
        assert run(llm, [(PROMPTS[0], adapters["all"])]) == first
