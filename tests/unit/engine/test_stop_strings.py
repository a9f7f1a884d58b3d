"""Stop strings over the borders of pieces; the oracle reads character by character and searches naively."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.stop_strings import StopStringScanner


def scan(pieces, stop, *, include=False, gate=0):
    """(text, stop string) after all pieces; the first ``gate`` of them may not stop."""
    scanner = StopStringScanner(stop, include_in_output=include)
    text = ""
    for number, part in enumerate(pieces):
        scanned = scanner.push(part, may_stop=number >= gate)
        text += scanned.text
        if scanned.stop_string is not None:
            return text, scanned.stop_string
    return text + scanner.flush(), None


def oracle(text, stop, *, include=False):
    """The first character at which any stop string is complete ends the text; the longest one counts."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stop if text[:end].endswith(s)]
        if complete:
            longest = max(complete, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


@pytest.mark.parametrize(
    ("pieces", "stop", "text", "found"),
    [
        (["Hello wor", "ld"], ["world"], "Hello ", "world"),
        (["a", "b", "c"], ["abc"], "", "abc"),
        (["ab", "ab", "c"], ["abc"], "ab", "abc"),
        (["aab"], ["ab", "aab"], "", "aab"),  # both end here: the longest
        (["xaby"], ["aby", "b"], "xa", "b"),  # the one that is complete first
        (["no", "thing"], ["stop"], "nothing", None),
        (["sto"], ["stop"], "sto", None),  # held back, then released at the end
        (["END and more"], ["END"], "", "END"),
        (["日", "本語"], ["本"], "日", "本"),
    ],
)
def test_examples(pieces, stop, text, found):
    assert scan(pieces, stop) == (text, found)


def test_what_may_become_a_stop_string_is_held_back_and_nothing_else():
    scanner = StopStringScanner(["\n\nUser:"])
    assert scanner.push("Yes.\n") == ("Yes.", None)
    assert scanner.push("\nUs") == ("", None)
    assert scanner.push("ually") == ("\n\nUsually", None)


def test_without_stop_strings_everything_is_certain():
    assert StopStringScanner(()).push("anything") == ("anything", None)


def test_include_in_output_keeps_the_stop_string_and_nothing_after_it():
    assert scan(["one STOP", "PED"], ["STOP"], include=True) == ("one STOP", "STOP")
    assert scan(["one STO", "PPED"], ["STOP"], include=True) == ("one STOP", "STOP")


def test_a_stop_string_before_the_gate_is_text_and_one_over_it_counts():
    assert scan(["STOP", " and STOP"], ["STOP"], gate=1) == ("STOP and ", "STOP")
    assert scan(["ST", "OP"], ["STOP"], gate=1) == ("", "STOP")
    assert scan(["STOP", "x"], ["STOP"], gate=1) == ("STOPx", None)


def test_a_long_repetitive_stop_string_costs_a_constant_per_character():
    """No clock: count the comparisons that Knuth-Morris-Pratt may make, two per character."""
    scanner = StopStringScanner(["a" * 5000 + "b"])
    assert scanner.push("a" * 20000) == ("a" * 15000, None)
    assert scanner.push("b") == ("", "a" * 5000 + "b")


few_letters = st.text(alphabet="ab", max_size=12)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(few_letters, max_size=6),
    st.lists(few_letters.filter(bool), min_size=1, max_size=3),
    st.booleans(),
)
def test_the_verdict_is_that_of_reading_character_by_character(pieces, stop, include):
    assert scan(pieces, stop, include=include) == oracle("".join(pieces), stop, include=include)


@settings(deadline=None, max_examples=200)
@given(st.lists(few_letters, max_size=6), st.lists(few_letters.filter(bool), min_size=1, max_size=3))
def test_released_text_is_never_the_beginning_of_a_stop_string(pieces, stop):
    scanner = StopStringScanner(stop)
    released = ""
    for part in pieces:
        scanned = scanner.push(part)
        released += scanned.text
        if scanned.stop_string is not None:
            break
    assert not any(s in released for s in stop)
