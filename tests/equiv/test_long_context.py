"""A prompt of 32,768 tokens: chunked, in bounded memory, with the bits of other chunks."""

import json
import subprocess
import sys

import pytest

NUM_TOKENS = 32_768
MOST_GROWTH_MIB = 48
"""Token ids, hashes, block and rope tables of the prompt take 10; anything quadratic takes gigabytes."""

SCRIPT = """
import json, resource, sys
from octavo import LLM, SamplingParams

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

chunk = int(sys.argv[2])
llm = LLM(sys.argv[1], kernels="native", num_threads=2, num_blocks=2100, max_num_batched_tokens=chunk)
prompt = [7 * i % 250 for i in range(int(sys.argv[3]))]
params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, logprobs=2)
llm.generate({"prompt_token_ids": prompt[:600]}, params, use_tqdm=False)
before = peak_mib()
choice = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0].outputs[0]
logprobs = [[(token, entry.logprob) for token, entry in step.items()] for step in choice.logprobs]
print(json.dumps({"tokens": list(choice.token_ids), "logprobs": logprobs, "growth": peak_mib() - before}))
"""


@pytest.fixture(scope="module")
def path(tiny_llama):
    metadata = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 16.0,
        "llama.rope.scaling.original_context_length": 4096,
    }
    return tiny_llama(num_layers=1, num_heads=2, num_kv_heads=1, context_length=65_536, metadata=metadata)


def run(path, max_num_batched_tokens: int) -> dict:
    """In a process of its own, whose peak of memory nobody else has raised."""
    command = [sys.executable, "-c", SCRIPT, str(path), str(max_num_batched_tokens), str(NUM_TOKENS)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_long_prompt_in_chunks_takes_little_memory_and_keeps_its_bits(path):
    small, large = run(path, 256), run(path, 1000)
    assert len(small["tokens"]) == 3
    assert (small["tokens"], small["logprobs"]) == (large["tokens"], large["logprobs"])
    assert max(small["growth"], large["growth"]) < MOST_GROWTH_MIB
