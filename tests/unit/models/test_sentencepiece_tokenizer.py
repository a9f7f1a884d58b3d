"""SentencePiece-style tokenizers, against what the original library did with a vocabulary of its own."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hostile_texts import HOSTILE_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ModelLoadError
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_metadata import Metadata
from octavo.models.gguf_tokenizer import build_tokenizer
from octavo.models.model_tokenizer import ModelTokenizer

GOLDENS = Path(__file__).parents[2] / "goldens"
RECORDED = json.loads((GOLDENS / "sentencepiece.json").read_text())


def metadata_of(recorded, *, add_space_prefix: bool | None = None, **changes) -> Metadata:
    entries = {
        "model": "llama",
        "tokens": recorded["tokens"],
        "scores": np.array(recorded["scores"], np.float32),
        "token_type": np.array(recorded["types"], np.int32),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "add_space_prefix": add_space_prefix,
        **changes,
    }
    values = {f"tokenizer.ggml.{name}": value for name, value in entries.items() if value is not None}
    return Metadata(Path("m.gguf"), values)


def tokenizer_of(recorded, **changes) -> ModelTokenizer:
    return build_tokenizer(metadata_of(recorded, **changes))


@pytest.fixture(scope="module", params=[False, True], ids=["no space prefix", "space prefix"])
def case(request):
    recorded = RECORDED[str(request.param).lower()]
    return recorded, tokenizer_of(recorded, add_space_prefix=request.param)


def test_ids_equal_those_of_the_original_library(case):
    recorded, tokenizer = case
    for text, ids in zip(HOSTILE_TEXTS, recorded["ids"], strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text


def test_text_comes_back_as_from_the_original_library(case):
    recorded, tokenizer = case
    for ids, text in zip(recorded["ids"], recorded["decoded"], strict=True):
        assert tokenizer.decode(ids) == text


@settings(deadline=None, max_examples=200)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_any_text_comes_back(case, text):
    _, tokenizer = case
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def merged_by_score(recorded, text: str) -> list[str]:
    """The rule itself, in its most literal form: join the best-scored neighbours, the leftmost first."""
    scores = {
        token: score
        for token, score, kind in zip(recorded["tokens"], recorded["scores"], recorded["types"], strict=True)
        if kind == 1
    }
    parts = list(text.replace(" ", "▁"))
    while pairs := [
        (-scores[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in scores
    ]:
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


ALPHABET = sorted({c for token in RECORDED["false"]["tokens"][260:] for c in token if len(token) < 4} - {"▁"})


@settings(deadline=None, max_examples=300)
@given(text=st.text(st.sampled_from([*ALPHABET, " "]), max_size=60))
def test_derived_merges_do_what_merging_by_score_does(text):
    recorded = RECORDED["false"]
    tokenizer = tokenizer_of(recorded, add_space_prefix=False)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert [recorded["tokens"][token_id] for token_id in ids] == merged_by_score(recorded, text)


def test_token_bytes_are_exact(case):
    recorded, tokenizer = case
    for token_id, (token, kind) in enumerate(zip(recorded["tokens"], recorded["types"], strict=True)):
        if kind == 6:
            assert tokenizer.token_bytes(token_id) == bytes([int(re.fullmatch("<0x(..)>", token)[1], 16)])
        elif kind == 1:
            assert tokenizer.token_bytes(token_id) == token.replace("▁", " ").encode()
        else:
            assert tokenizer.token_bytes(token_id) == token.encode()


def test_bos_is_added_once_unless_the_file_says_otherwise():
    tokenizer = tokenizer_of(RECORDED["true"])
    assert tokenizer.encode("the page")[0] == 1
    assert tokenizer.encode("<s>the page", add_special_tokens=False, parse_special=True).count(1) == 1
    assert 1 not in tokenizer.encode("<s>", add_special_tokens=False)
    assert tokenizer_of(RECORDED["true"], add_bos_token=False).encode("") == []


def test_user_defined_tokens_are_matched_in_text_and_are_text():
    tokenizer = tokenizer_of(RECORDED["false"], add_space_prefix=False)
    assert tokenizer.encode("a<tool>b", add_special_tokens=False)[1] == 3
    assert not tokenizer.is_special(3)
    assert tokenizer.decode(tokenizer.encode("a<tool>b"), skip_special_tokens=True) == "a<tool>b"


def test_without_byte_tokens_unknown_characters_become_one_unknown_token():
    recorded = {
        name: RECORDED["false"][name][:4] + RECORDED["false"][name][260:]
        for name in ("tokens", "scores", "types")
    }
    tokenizer = tokenizer_of(recorded, add_space_prefix=False)
    ids = tokenizer.encode("a中文a", add_special_tokens=False)
    assert ids == [ids[0], 0, ids[0]]


def test_scores_are_needed():
    with pytest.raises(ModelLoadError, match="no scores"):
        tokenizer_of(RECORDED["true"], scores=None)


def vocabulary_of(tokens) -> dict[str, object]:
    return {
        "tokens": ["<unk>", "<s>", "</s>", *tokens],
        "scores": [-float(rank) for rank in range(len(tokens) + 3)],
        "types": [2, 3, 3] + [1] * len(tokens),
    }


def test_a_token_too_long_to_be_cut_in_every_way_is_refused():
    assert tokenizer_of(vocabulary_of(["a" * 1024])).vocab_size == 4
    with pytest.raises(
        ModelLoadError, match=r"token 'aaa.*\.\.\. has 1,025 characters; at most 1,024"
    ) as caught:
        tokenizer_of(vocabulary_of(["a" * 1025]))
    assert len(str(caught.value)) < 200


def test_a_vocabulary_with_too_many_ways_to_cut_is_refused():
    tokens = [letter * length for letter in "abcdef" for length in range(700, 1000)]
    with pytest.raises(ModelLoadError, match=r"merges of the vocabulary .* at most 100,000,000"):
        tokenizer_of(vocabulary_of(tokens))


def test_gemma_ids_equal_the_goldens(gemma_path):
    tokenizer = build_tokenizer(GGUFFile(gemma_path).metadata)
    assert tokenizer.eos_token_ids == {1, 106}
    for golden in json.loads((GOLDENS / "gemma3.json").read_text()):
        assert tokenizer.encode(golden["text"]) == golden["ids"]
        assert tokenizer.decode(golden["continuation"], skip_special_tokens=True) == golden["completion"]
    for text in HOSTILE_TEXTS:
        if "▁" not in text:
            assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_turns_of_phi_3_take_the_white_space_behind_them_with_them():
    """As its tokenizer.json says, and its GGUF files do not."""
    recorded = RECORDED["false"]
    tokens, types = [*recorded["tokens"], "<|user|>", "<|end|>"], [*recorded["types"], 3, 3]
    changes = {"tokens": tokens, "token_type": np.array(types, np.int32)}
    changes["scores"] = np.array([*recorded["scores"], 0, 0], np.float32)
    first = len(tokens) - 2
    text = "<|user|>\n a<|end|>\n<s> a"
    for architecture, gaps in (("phi3", ("a", "")), ("llama", ("\n a", "\n"))):
        metadata = metadata_of(recorded, add_space_prefix=False, **changes)
        values = {**metadata.values, "general.architecture": architecture}
        tokenizer = build_tokenizer(Metadata(Path("m.gguf"), values))
        plain = [tokenizer.encode(gap, add_special_tokens=False) for gap in (*gaps, " a")]
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=True)
        assert ids == [first, *plain[0], first + 1, *plain[1], 1, *plain[2]]
