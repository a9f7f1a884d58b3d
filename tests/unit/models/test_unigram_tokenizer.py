"""Unigram tokenizers from GGUF: the table of characters, and what a damaged one costs."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_corpus import gguf_metadata

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata
from octavo.models.gguf_tokenizer import build_tokenizer
from octavo.models.model_tokenizer import ModelTokenizer

WIDE, LEAF, VALUE = 1 << 9, 1 << 8, 1 << 31
MAPPED = "\uff22"  # a full-width B, three bytes


def tokenizer_with(**changes) -> ModelTokenizer:
    values = gguf_metadata("unigram") | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return build_tokenizer(
        Metadata(Path("m.gguf"), {key: value for key, value in values.items() if value is not None})
    )


def character_map(*, units: dict[int, int] | None = None, texts: bytes = b"B\0") -> bytes:
    """One character and what replaces it: byte i of it leads from block i to block i + 1."""
    array = np.zeros(5 * 256, "<u4")
    array[0] = 1 << 10 | WIDE
    at = 0
    for block, byte in enumerate(MAPPED.encode(), 1):
        at = block << 8 | (at & 255) ^ byte
        array[at] = (block ^ (block + 1)) << 10 | WIDE | byte | (LEAF if block == 3 else 0)
    array[4 << 8 | at & 255] = VALUE
    for index, unit in (units or {}).items():
        array[index] = unit
    return struct.pack("<I", array.nbytes) + array.tobytes() + texts


def as_metadata(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def test_characters_are_replaced_before_the_text_is_cut():
    plain, mapping = tokenizer_with(), tokenizer_with(precompiled_charsmap=as_metadata(character_map()))
    assert plain.encode(f"a{MAPPED}b") != plain.encode("aBb")
    assert mapping.encode(f"a{MAPPED}b") == plain.encode("aBb")


def test_spaces_are_kept_if_the_file_says_so():
    kept = tokenizer_with(remove_extra_whitespaces=False)
    assert kept.decode(kept.encode("a   b  ")) == "a   b  "
    assert tokenizer_with().decode(tokenizer_with().encode("a   b  ")) == "a b"


def test_an_end_is_added_unless_the_file_says_otherwise():
    tokenizer = tokenizer_with(add_eos_token=None, eos_token_id=1)
    assert tokenizer.encode("a")[-1] == 1
    assert tokenizer_with(eos_token_id=1).encode("a")[-1] != 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"abc", "cut short"),
        (character_map()[:2000], "cut short"),
        (struct.pack("<I", 1 << 31) + bytes(64), "cut short"),
        (character_map(units={0: 100 << 10 | WIDE}), "leads beyond its end"),
        (character_map(units={7: 1 << 30}), "leads beyond its end"),
        (character_map(texts=b"\xff\0"), "not UTF-8"),
        (character_map(texts=b"x" * 257), "more than 256 bytes"),
        (character_map(texts=b""), None),
        (character_map(units={4 << 8 | 0x5B: VALUE | 9}), None),
    ],
)
def test_a_damaged_table_is_one_clear_error(content, problem):
    if problem is None:  # harmless: nothing of it is ever looked up wrongly
        tokenizer_with(precompiled_charsmap=as_metadata(content)).encode(MAPPED)
        return
    with pytest.raises(ModelLoadError, match=f"table of characters .* {problem}"):
        tokenizer_with(precompiled_charsmap=as_metadata(content))


@settings(deadline=None, max_examples=300)
@given(
    damage=st.lists(
        st.tuples(st.integers(0, 5 * 256 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=6
    ),
    texts=st.binary(max_size=12),
    text=st.text(st.sampled_from([MAPPED, "\uff00", "a", "\uef3c"])),
)
def test_no_table_makes_the_library_stumble(damage, texts, text):
    content = character_map(units=dict(damage), texts=texts)
    try:
        tokenizer = tokenizer_with(precompiled_charsmap=as_metadata(content))
    except ModelLoadError:
        return
    tokenizer.encode(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "no finite scores"),
        ({"unknown_token_id": None}, "unknown_token_id"),
        ({"scores": np.full(len(gguf_metadata("unigram")["tokenizer.ggml.tokens"]), np.nan)}, "no finite"),
    ],
)
def test_a_vocabulary_without_its_numbers_is_refused(changes, message):
    with pytest.raises(ModelLoadError, match=message):
        tokenizer_with(**changes)
