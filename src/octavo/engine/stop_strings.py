"""`StopStringScanner`: finds stop strings in text that arrives in pieces, and holds back what may become one.

The verdict does not depend on how the text is cut into pieces: it is that of reading it character by
character. The first stop string to be complete ends the text; of several that end at the same
character the longest counts. Each character costs a constant number of operations per stop string
(Knuth-Morris-Pratt), so a client's long or repetitive stop strings cannot slow the engine down.
"""

from collections.abc import Sequence
from typing import NamedTuple


class ScannedText(NamedTuple):
    """What is certain after a piece of text."""

    text: str
    """Text to release; never taken back later."""
    stop_string: str | None = None
    """The stop string that ended the text; no more must be pushed."""


class StopStringScanner:
    """Scans the text of one request."""

    def __init__(self, stop: Sequence[str], *, include_in_output: bool = False) -> None:
        # Longest first, so that the first pattern found complete is the one that counts.
        self._patterns = [_Pattern(text) for text in sorted(set(stop), key=len, reverse=True)]
        self._include_in_output = include_in_output
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> ScannedText:
        """Add a piece of text.

        Args:
            text: the next piece.
            may_stop: whether a stop string completed in this piece counts; ``False`` before ``min_tokens``.
        """
        if not self._patterns:
            return ScannedText(text)
        held = self._held + text
        for end, character in enumerate(text, start=len(self._held) + 1):
            match = self._advance(character)
            if match is not None and may_stop:
                self._held = ""
                return ScannedText(held[: end if self._include_in_output else end - len(match)], match)
        num_certain = len(held) - max(pattern.num_matched for pattern in self._patterns)
        self._held = held[num_certain:]
        return ScannedText(held[:num_certain])

    def flush(self) -> str:
        """The text held back, when the request has ended for another reason."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> str | None:
        """Read one character; returns the longest stop string that it completes."""
        match = None
        for pattern in self._patterns:
            if pattern.advance(character) and match is None:
                match = pattern.text
        return match


class _Pattern:
    """One stop string and how much of it the text read so far ends with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.num_matched = 0
        """Length of the longest proper prefix of ``text`` that the text read so far ends with."""
        self._failure = _failure_function(text)

    def advance(self, character: str) -> bool:
        """Read one character; returns whether it completes the stop string."""
        matched = self.num_matched
        while matched and self.text[matched] != character:
            matched = self._failure[matched - 1]
        if self.text[matched] == character:
            matched += 1
        is_complete = matched == len(self.text)
        self.num_matched = self._failure[matched - 1] if is_complete else matched
        return is_complete


def _failure_function(text: str) -> list[int]:
    """For each prefix of ``text``: the length of its longest proper prefix that is also its suffix."""
    failure = [0] * len(text)
    matched = 0
    for position in range(1, len(text)):
        while matched and text[position] != text[matched]:
            matched = failure[matched - 1]
        if text[position] == text[matched]:
            matched += 1
        failure[position] = matched
    return failure
