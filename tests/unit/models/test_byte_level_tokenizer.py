import json
from pathlib import Path

import pytest
from gguf_writer import write_gguf
from hostile_texts import HOSTILE_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import SPECIAL_TOKENS, tiny_vocabulary

from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_tokenizer import build_tokenizer
from octavo.models.model_tokenizer import ModelTokenizer

GOLDENS = Path(__file__).parents[2] / "goldens"


def tokenizer_with(folder: Path, **changes) -> ModelTokenizer:
    """The tiny tokenizer with some of its metadata changed (``None`` removes an entry)."""
    entries = tiny_vocabulary() | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    entries = {key: value for key, value in entries.items() if value is not None}
    return build_tokenizer(GGUFFile(write_gguf(folder / "t.gguf", entries, {})).metadata)


@pytest.fixture
def tiny(tmp_path):
    return tokenizer_with(tmp_path)


@pytest.fixture(scope="module")
def smollm2(default_model_path):
    return build_tokenizer(GGUFFile(default_model_path).metadata)


@pytest.fixture(scope="module")
def smollm2_bytes(smollm2):
    """The bytes that its tokens can spell: some are in none of them."""
    return {byte for token_id in range(smollm2.vocab_size) for byte in smollm2.token_bytes(token_id)}


def test_implements_the_protocol(tiny):
    tokenizer: Tokenizer = tiny
    for name in ("encode", "decode", "token_bytes", "is_special", "apply_chat_template"):
        assert callable(getattr(tokenizer, name))
    assert tokenizer.vocab_size == len(tiny_vocabulary()["tokenizer.ggml.tokens"])
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == {0, 2}  # the end of the text, and of a turn


@pytest.mark.model
def test_prompt_ids_equal_the_goldens(smollm2):
    for golden in json.loads((GOLDENS / "smollm2.json").read_text()):
        chat = golden["kind"] == "chat"
        ids = smollm2.encode(golden["text"], add_special_tokens=not chat, parse_special=chat)
        assert ids == golden["ids"]
        assert smollm2.decode(golden["continuation"], skip_special_tokens=True) == golden["completion"]


@pytest.mark.model
def test_hostile_texts_have_the_ids_of_a_literal_byte_pair_merge(smollm2):
    for text, ids in zip(
        HOSTILE_TEXTS, json.loads((GOLDENS / "smollm2_tokens.json").read_text()), strict=True
    ):
        assert smollm2.encode(text) == ids


@pytest.mark.model
@settings(deadline=None, max_examples=200)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_from_the_real_vocabulary(smollm2, smollm2_bytes, text):
    expected = bytes(byte for byte in text.encode() if byte in smollm2_bytes)
    assert smollm2.decode(smollm2.encode(text)) == expected.decode(errors="replace")


@settings(deadline=None, max_examples=200)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"])), parts=st.lists(st.sampled_from(SPECIAL_TOKENS))
)
def test_any_text_comes_back(tiny_tokenizer, text, parts):
    text = text.join(parts) if parts else text
    for parse_special in (False, True):
        ids = tiny_tokenizer.encode(text, parse_special=parse_special)
        assert tiny_tokenizer.decode(ids) == text
        assert b"".join(map(tiny_tokenizer.token_bytes, ids)) == text.encode()


@pytest.fixture(scope="module")
def tiny_tokenizer(tmp_path_factory):
    return tokenizer_with(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts_come_back(tiny_tokenizer, text):
    ids = tiny_tokenizer.encode(text)
    assert tiny_tokenizer.decode(ids) == text
    assert not any(map(tiny_tokenizer.is_special, ids))


def test_control_tokens_in_a_users_text_are_text(tiny):
    for token_id, token in enumerate(SPECIAL_TOKENS):
        assert token_id not in tiny.encode(f"say {token} twice{token}")
        assert tiny.encode(token, parse_special=True) == [token_id]
        assert tiny.token_bytes(token_id) == token.encode()
        assert tiny.is_special(token_id)
    assert tiny.decode([1, *tiny.encode("cat"), 2], skip_special_tokens=True) == "cat"
    assert tiny.decode([1, *tiny.encode("cat"), 2]) == "<|im_start|>cat<|im_end|>"


@pytest.mark.parametrize("pre", ["default", "gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"])
def test_no_word_split_lets_text_name_a_control_token(tmp_path, pre):
    tokenizer = tokenizer_with(tmp_path, pre=pre, add_bos_token=False)
    for token in SPECIAL_TOKENS:
        assert not any(map(tokenizer.is_special, tokenizer.encode(f"{token} {token}\n{token}{token}")))


def test_merges_are_used(tiny):
    assert len(tiny.encode("the cat")) == 2
    assert tiny.token_bytes(tiny.encode(" cat")[0]) == b" cat"


def test_a_token_outside_the_byte_alphabet_stands_for_itself(tmp_path):
    tokens = [*tiny_vocabulary()["tokenizer.ggml.tokens"], "\u4e2d x"]
    tokenizer = tokenizer_with(tmp_path, tokens=tokens, token_type=None)
    assert tokenizer.token_bytes(len(tokens) - 1) == "\u4e2d x".encode()


def test_a_character_may_be_spread_over_tokens(tiny):
    ids = tiny.encode("\U0001f642")
    assert len(ids) == 4
    assert tiny.decode(ids[:3]) == "\ufffd"


def test_one_bos_and_only_if_the_model_wants_it(tmp_path):
    with_both = tokenizer_with(tmp_path, add_bos_token=True, add_eos_token=True)
    assert with_both.encode("")[0] == 1
    assert with_both.encode("a") == [1, *with_both.encode("a", add_special_tokens=False), 2]
    assert 1 not in tokenizer_with(tmp_path, add_bos_token=False).encode("a")
    rendered = with_both.apply_chat_template([{"role": "user", "content": "a"}])
    assert (
        with_both.encode(rendered, add_special_tokens=False, parse_special=True).count(1) == 2
    )  # one a turn


def test_the_word_split_decides_about_bos_unless_the_file_does(tmp_path):
    assert tokenizer_with(tmp_path, pre="llama-bpe", add_bos_token=None).encode("")[:1] == [1]
    assert tokenizer_with(tmp_path, pre="llama-bpe", add_bos_token=False).encode("") == []
    assert tokenizer_with(tmp_path, pre="smollm", add_bos_token=None).encode("") == []


def test_llama3_takes_a_word_that_is_a_token_whole(tmp_path):
    tokens = [*tiny_vocabulary()["tokenizer.ggml.tokens"], "xyz"]
    whole = tokenizer_with(tmp_path, pre="llama-bpe", tokens=tokens, token_type=None)
    assert whole.encode("xyz", add_special_tokens=False) == [len(tokens) - 1]
    merged = tokenizer_with(tmp_path, pre="qwen2", tokens=tokens, token_type=None)
    assert len(merged.encode("xyz")) == 3


@pytest.mark.parametrize("text", ["\ud800", "ab\udfffcd"])
def test_a_lone_surrogate_is_refused(tiny, text):
    with pytest.raises(InvalidRequestError, match=r"lone surrogate \(U\+D"):
        tiny.encode(text)


@pytest.mark.parametrize("token_id", [-1, 1 << 40, 274])
def test_an_id_outside_the_vocabulary_is_refused(tiny, token_id):
    with pytest.raises(InvalidRequestError, match=f"token id {token_id} does not exist; .* 0 to 273"):
        tiny.token_bytes(token_id)
    with pytest.raises(InvalidRequestError, match="does not exist"):
        tiny.decode([5, token_id])


def test_without_token_types_the_named_ends_are_still_special(tmp_path):
    tokenizer = tokenizer_with(tmp_path, token_type=None, eot_token_id=0)
    assert tokenizer.eos_token_ids == {0, 2}
    assert [tokenizer.is_special(token_id) for token_id in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "unigram"}, "tokenizer kind 'unigram' is not supported; known are 'gpt2', 'llama', 't5'"),
        ({"model": None}, "tokenizer kind None is not supported"),
        ({"pre": "martian"}, "pre-tokenizer 'martian' is not one of the .* known ones; use"),
        ({"tokens": None}, "no vocabulary"),
        ({"tokens": []}, "no vocabulary"),
        ({"tokens": ["a"]}, "token_type' must be an array of 1 numbers"),
        ({"merges": None}, "no merges"),
        ({"merges": ["q zz"]}, "merge 'q zz' joins or makes an unknown token"),
        ({"merges": ["q z"]}, "merge 'q z' joins or makes an unknown token"),
        ({"merges": ["t"]}, "merge 't' joins or makes an unknown token"),
        ({"bos_token_id": 274}, "bos_token_id' must be a token id below 274, found 274"),
        ({"add_bos_token": 1}, "add_bos_token' must be true or false, found 1"),
    ],
)
def test_a_tokenizer_that_cannot_be_built_is_one_clear_error(tmp_path, changes, expected):
    with pytest.raises(ModelLoadError, match=expected) as caught:
        tokenizer_with(tmp_path, **changes)
    assert "\n" not in str(caught.value)
