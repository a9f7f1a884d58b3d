"""Thoughts are told apart from the answer."""

import pytest
from parsed_answers import parse

from octavo.server.tools.reasoning import prompt_opens_reasoning, template_has_reasoning

CALL = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "content"),
    [
        ("<think>\nHm, 1 < 2.\n</think>\n\nYes.", False, "Hm, 1 < 2.", "Yes."),
        ("Hm.\n</think>\n\nYes.", True, "Hm.", "Yes."),
        ("<think>Hm.</think>Yes.", True, "Hm.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", False, "", "Yes."),
        ("Yes. <think>no</think>", False, "", "Yes. <think>no</think>"),
        ("<think>Hm, and", False, "Hm, and", ""),
        ("", False, "", ""),
    ],
)
def test_thoughts(text, is_open, reasoning, content):
    for pieces in ([text], text):
        parsed = parse(None, pieces, has_reasoning=True, reasoning_is_open=is_open)
        assert (parsed.reasoning, parsed.content) == (reasoning, content)


def test_calls_come_after_thoughts():
    parsed = parse("hermes", f"<think>{CALL}</think>\n{CALL}", has_reasoning=True)
    assert parsed == ("", CALL, [("get_time", "{}")])


def test_without_reasoning_the_marks_are_content():
    assert parse(None, "<think>a</think>").content == "<think>a</think>"


def test_what_a_template_says():
    assert template_has_reasoning("{{ content.split('</think>')[-1] }}")
    assert not template_has_reasoning("{{ content }}")
    assert prompt_opens_reasoning("<|im_start|>assistant\n<think>\n")
    assert not prompt_opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n")
