"""`LLM` with structured outputs, and embeddings, on a tiny random model and the reference kernels."""

import json
import math
import re

import pytest

from octavo.errors import InvalidRequestError
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams

SHORT = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


def test_texts_have_the_shape_that_was_asked_for(make_llm):
    llm = make_llm()
    shapes = [{"regex": r"[0-9]{3}"}, {"choice": ["cat", "the cat"]}, {"json": {"const": [1, "a"]}}]
    params = [
        SamplingParams(seed=1, max_tokens=60, n=2, structured_outputs=StructuredOutputsParams(**shape))
        for shape in shapes
    ]
    numbers, animals, constants = llm.generate(["a", "a", "a"], params, use_tqdm=False)
    assert all(re.fullmatch("[0-9]{3}", choice.text) for choice in numbers.outputs)
    assert all(choice.text in ("cat", "the cat") for choice in animals.outputs)
    assert all(json.loads(choice.text) == [1, "a"] for choice in constants.outputs)
    assert {choice.finish_reason for choice in (*numbers.outputs, *animals.outputs)} == {"stop"}


def test_a_constraint_that_is_none_ends_the_call_and_nothing_else(make_llm):
    llm = make_llm()
    params = SHORT.clone(structured_outputs=StructuredOutputsParams(regex="(a"))
    with pytest.raises(InvalidRequestError, match="regex cannot be used") as refusal:
        llm.generate(["a", "b"], [SHORT, params], use_tqdm=False)
    assert refusal.value.param == "structured_outputs"
    assert llm.generate("a", SHORT, use_tqdm=False)[0].finished


def test_where_the_end_is_all_that_fits_min_tokens_leave_nothing(make_llm):
    params = SamplingParams(min_tokens=9, structured_outputs=StructuredOutputsParams(choice=["a"]))
    [output] = make_llm().generate("a", params, use_tqdm=False)
    assert output.outputs[0].finish_reason == "error"
    assert "the constraint allows no token that min_tokens" in output.outputs[0].error


def test_embeddings_have_length_one_unless_asked_otherwise(make_llm):
    llm = make_llm()
    normed, raw = llm.embed(
        ["the cat"] * 2, [PoolingParams(), PoolingParams(normalize=False)], use_tqdm=False
    )
    length = math.dist(raw.outputs.embedding, [0.0] * 64)
    assert math.dist(normed.outputs.embedding, [0.0] * 64) == pytest.approx(1.0)
    assert [value / length for value in raw.outputs.embedding] == pytest.approx(normed.outputs.embedding)


def test_prompts_of_embeddings_are_counted(make_llm):
    llm = make_llm()
    llm.embed([{"prompt_token_ids": [1, 2, 3]}, {"prompt_token_ids": [4, 5]}], use_tqdm=False)
    counts = llm._engine.telemetry.snapshot.counts
    assert (counts.num_prompt_tokens, counts.num_generation_tokens) == (5, 0)


def test_an_embedding_takes_nothing_from_the_cache_and_leaves_something_there(make_llm):
    llm = make_llm()
    prompt = {"prompt_token_ids": list(range(40))}
    first, again = (llm.embed(prompt, use_tqdm=False)[0] for _ in range(2))
    assert first.outputs == again.outputs
    assert llm.generate(prompt, SHORT, use_tqdm=False)[0].num_cached_tokens == 32


@pytest.mark.parametrize("call", ["embed", "generate"])
def test_parameters_of_the_other_kind_are_refused(make_llm, call):
    wrong = {"embed": SamplingParams(), "generate": PoolingParams()}[call]
    with pytest.raises(InvalidRequestError, match="_params must be"):
        getattr(make_llm(), call)("a", wrong, use_tqdm=False)


def test_pooling_params_take_a_flag():
    with pytest.raises(InvalidRequestError, match="normalize") as refusal:
        PoolingParams(normalize=1)
    assert refusal.value.param == "normalize"
