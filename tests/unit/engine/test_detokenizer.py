"""Text comes out a character at a time, whatever the tokens' borders are."""

import pytest
from engine_fakes import EOS, TURN, ByteTokenizer, piece
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.detokenizer import Detokenizer


def pieces_of(token_ids, **options):
    detokenizer = Detokenizer(ByteTokenizer(), **options)
    return [detokenizer.append([token_id]) for token_id in token_ids] + [detokenizer.flush()]


def test_a_character_is_held_back_until_it_is_complete():
    assert pieces_of("€".encode()) == ["", "", "€", ""]


def test_a_four_byte_character_over_tokens():
    assert pieces_of([*"a😀b".encode()]) == ["a", "", "", "", "😀", "b", ""]


def test_an_incomplete_character_at_the_end_becomes_a_replacement_character():
    assert pieces_of("€".encode()[:2]) == ["", "", "\ufffd"]


@pytest.mark.parametrize(
    "stream",
    [b"\xff", b"a\x80b", b"\xe2\x28\xa1", b"\xf0\x9f\x41", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"],
)
def test_invalid_bytes_become_what_python_makes_of_them(stream):
    assert "".join(pieces_of(stream)) == stream.decode("utf-8", "replace")


def test_special_tokens_are_skipped_on_request():
    token_ids = [piece(" the"), TURN, piece("stop"), EOS]
    assert "".join(pieces_of(token_ids)) == " thestop"
    assert "".join(pieces_of(token_ids, skip_special_tokens=False)) == " the<turn>stop<eos>"


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, ByteTokenizer.vocab_size - 1)), st.booleans())
def test_the_pieces_joined_are_the_whole_decoded_at_once(token_ids, skip):
    whole = ByteTokenizer().decode(token_ids, skip_special_tokens=skip)
    assert "".join(pieces_of(token_ids, skip_special_tokens=skip)) == whole


@settings(deadline=None, max_examples=100)
@given(st.text(), st.randoms())
def test_valid_text_never_shows_a_replacement_character(text, rng):
    shown = pieces_of([*text.encode()])
    assert "".join(shown) == text
    assert all("\ufffd" not in part for part in shown) or "\ufffd" in text
