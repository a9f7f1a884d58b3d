"""What a request leaves out is what the model's files recommend, but for the bound of tokens."""

from octavo.sampling_params import SamplingParams
from octavo.server.protocol.completion import CompletionRequest
from octavo.server.sampling import sampling_params

RECOMMENDED = SamplingParams(temperature=0.7, top_k=20, repetition_penalty=1.05, max_tokens=5)


def params(**fields):
    body = CompletionRequest(prompt="x", **fields)
    return sampling_params(body, RECOMMENDED, max_tokens=None, logprobs=None, prompt_logprobs=None)


def test_what_is_left_out_or_null_is_recommended():
    found = params(temperature=None)
    assert (found.temperature, found.top_k, found.repetition_penalty) == (0.7, 20, 1.05)
    assert found.max_tokens is None


def test_what_is_said_counts():
    found = params(temperature=0, top_k=-1, n=2)
    assert (found.temperature, found.top_k, found.n) == (0, -1, 2)
    assert found.repetition_penalty == 1.05
