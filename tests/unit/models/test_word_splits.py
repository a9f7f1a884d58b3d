import json
from pathlib import Path

import pytest
from hostile_texts import HOSTILE_TEXTS
from tiny_models import byte_alphabet

from octavo.models.byte_level_bpe import pre_tokenizer
from octavo.models.tokenizer_patterns import WORD_SPLITS

GOLDENS = json.loads((Path(__file__).parents[2] / "goldens" / "word_splits.json").read_text())
BYTE_OF = {character: byte for byte, character in enumerate(byte_alphabet())}


@pytest.mark.parametrize("name", GOLDENS)
def test_words_are_cut_as_the_published_patterns_cut_them(name):
    splitter = pre_tokenizer(WORD_SPLITS[name])
    for text, expected in zip(HOSTILE_TEXTS, GOLDENS[name], strict=True):
        pieces = [piece for piece, _ in splitter.pre_tokenize_str(text)]
        assert [bytes(BYTE_OF[c] for c in piece).decode() for piece in pieces] == expected


@pytest.mark.parametrize("name", WORD_SPLITS)
def test_no_split_loses_or_adds_a_byte(name):
    splitter = pre_tokenizer(WORD_SPLITS[name])
    for text in HOSTILE_TEXTS:
        pieces = "".join(piece for piece, _ in splitter.pre_tokenize_str(text))
        assert bytes(BYTE_OF[character] for character in pieces) == text.encode()
