"""However an answer is cut into pieces, the same comes out of it; and nothing is lost."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsed_answers import parse
from tool_answers import ANSWERS

from octavo.server.tools.families import FAMILIES

TEXTS = [answer.text for answers in ANSWERS.values() for answer in answers]
HALVES = [half for text in TEXTS for half in (text[: len(text) // 2], text[len(text) // 2 :])]
MARKERS = [marker for family in FAMILIES for marker in family.markers]
CLOSINGS = ["</tool_call>", "</function>", "```", "<think>", "</think>", *' \n{}[];,"']
FRAGMENTS = [*TEXTS, *HALVES, *MARKERS, *CLOSINGS]


@st.composite
def cut_texts(draw):
    """A text that is full of markup, right and wrong, and pieces of it."""
    text = "".join(draw(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    borders = [0, *cuts, len(text)]
    return text, [text[start:end] for start, end in itertools.pairwise(borders)]


@pytest.mark.parametrize("family", [*(family.name for family in FAMILIES), "forced", None])
@given(cut=cut_texts(), reasons=st.booleans(), is_open=st.booleans())
@settings(deadline=None, max_examples=150)
def test_pieces_do_not_matter(family, cut, reasons, is_open):
    text, pieces = cut
    options = {"has_reasoning": reasons, "reasoning_is_open": is_open}
    assert parse(family, pieces, **options) == parse(family, [text], **options)


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
@given(cut=cut_texts())
@settings(deadline=None, max_examples=150)
def test_an_answer_without_a_call_is_content_to_the_last_character(family, cut):
    text, pieces = cut
    parsed = parse(family, pieces)
    if not parsed.calls:
        assert parsed.content == text
    else:
        assert len(parsed.content) < len(text)


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_marker_with_no_call_behind_it_takes_nothing_away(family, closing):
    for marker in MARKERS:
        parsed = parse(family, [marker + closing])
        if not parsed.calls:
            assert parsed.content == marker + closing
