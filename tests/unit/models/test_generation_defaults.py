import json

import numpy as np
import pytest

from octavo import LLM
from octavo.errors import ModelLoadError
from octavo.models.loaded import load_model

RECOMMENDED = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05, "max_new_tokens": 5}


def recommend(folder, **values):
    (folder / "generation_config.json").write_text(json.dumps(values))
    return folder


def test_generation_config_names_become_fields_of_sampling_params(tiny_folder):
    folder = recommend(tiny_folder(), **RECOMMENDED, do_sample=True, min_p=None)
    expected = {**RECOMMENDED, "max_tokens": RECOMMENDED["max_new_tokens"]}
    del expected["max_new_tokens"]
    assert load_model(folder).sampling_defaults == expected


def test_gguf_files_recommend_too(tiny_llama):
    metadata = {"general.sampling.temp": 0.5, "general.sampling.top_k": np.int32(40)}
    assert load_model(tiny_llama(metadata=metadata)).sampling_defaults == {"temperature": 0.5, "top_k": 40}


def test_calls_without_parameters_get_the_recommended_ones(tiny_folder):
    folder = recommend(tiny_folder(), **RECOMMENDED)
    options = {"num_blocks": 32, "kernels": "reference"}
    with LLM(folder, **options) as llm:
        assert llm.get_default_sampling_params().top_k == 20
        assert len(llm.generate("the cat", use_tqdm=False)[0].outputs[0].token_ids) <= 5
    with LLM(folder, generation_config="vllm", **options) as llm:
        assert llm.get_default_sampling_params().top_k == 0


@pytest.mark.parametrize("ids", [2, [2, 5]])
def test_stop_tokens_are_those_of_all_files(tiny_folder, ids):
    folder = recommend(tiny_folder(), eos_token_id=ids)
    assert load_model(folder).tokenizer.eos_token_ids >= {2}
    assert (5 in load_model(folder).tokenizer.eos_token_ids) == (ids != 2)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"temperature": -1}, "temperature must be between"),
        ({"top_p": "high"}, "top_p must be a finite number"),
        ({"eos_token_id": "two"}, "eos_token_id must be an id or a list of ids"),
        ({"eos_token_id": [1, None]}, "eos_token_id must be an id or a list of ids"),
        ({"eos_token_id": [1] * 100}, "eos_token_id must be an id or a list of ids"),
    ],
)
def test_a_wrong_value_is_one_line(tiny_folder, values, problem):
    with pytest.raises(ModelLoadError, match=problem) as caught:
        load_model(recommend(tiny_folder(), **values))
    assert "\n" not in str(caught.value)
