"""`parse_reasoning`: what a model thinks, between ``<think>`` and ``</think>``, before it answers."""

from octavo.server.tools.deltas import ReasoningDelta
from octavo.server.tools.text_reader import Steps, TextReader

OPENING, CLOSING = "<think>", "</think>"


def template_has_reasoning(template: str) -> bool:
    """Whether a chat template is of a model that thinks aloud."""
    return CLOSING in template


def prompt_opens_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt leaves the model in the midst of thinking."""
    return prompt.rstrip().endswith(OPENING)


def parse_reasoning(reader: TextReader, *, is_open: bool) -> Steps[None]:
    """Read the thoughts at the beginning of an answer, if there are any, and the white space around them.

    Args:
        reader: where they are read from.
        is_open: whether the prompt has opened them already.
    """
    if (yield from reader.take_marker(OPENING)) is None and not is_open:
        return
    yield from reader.skip_space()
    yield from reader.copy_until(CLOSING, delta=ReasoningDelta)
    yield from reader.skip_space()
