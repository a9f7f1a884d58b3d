"""`TextReader`: reads text that is still arriving, as if it were all there.

A parser is a generator: it yields what it has found, and ``None`` when it cannot go on without more text.
What it decides depends on the text alone, never on how it was cut into pieces, because every question is put
off until no further text can change the answer.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from octavo.server.tools.deltas import ContentDelta, Delta

T = TypeVar("T")
Steps = Generator[Delta | None, None, T]
"""A parser under way: yields deltas, or ``None`` to wait for text; returns a T."""


class TextReader:
    """The part of a text that has arrived and was not read yet.

    Attributes:
        unread: that part.
        is_complete: whether no more text will come.
    """

    def __init__(self) -> None:
        self.unread = ""
        self.is_complete = False

    def append(self, text: str) -> None:
        """Add what has arrived."""
        self.unread += text

    def close(self) -> None:
        """Say that nothing more will come."""
        self.is_complete = True

    def take(self, length: int) -> str:
        """Read so many characters, which must have arrived."""
        taken, self.unread = self.unread[:length], self.unread[length:]
        return taken

    def put_back(self, text: str) -> None:
        """Undo the reading of the text read last."""
        self.unread = text + self.unread

    def take_marker(self, marker: str) -> Steps[str | None]:
        """Read a marker and the white space before it; ``None``, with nothing read, if there is none."""
        while True:
            text = self.unread.lstrip()
            if text.startswith(marker):
                return self.take(len(self.unread) - len(text) + len(marker))
            if self.is_complete or not marker.startswith(text):
                return None
            yield None

    def take_until(self, marker: str) -> Steps[str | None]:
        """Read a marker and what is before it, and return that; ``None``, with nothing read, without it."""
        start = 0
        while (end := self.unread.find(marker, start)) < 0:
            if self.is_complete:
                return None
            start = max(0, len(self.unread) - len(marker) + 1)
            yield None
        taken = self.take(end)
        self.take(len(marker))
        return taken

    def peek(self) -> Steps[str]:
        """The next character that is no white space, which is not read; empty at the end of the text."""
        while True:
            text = self.unread.lstrip()
            if text or self.is_complete:
                return text[:1]
            yield None

    def skip_space(self) -> Steps[None]:
        """Read white space, if any comes."""
        yield from self.peek()
        self.unread = self.unread.lstrip()

    def copy_until(self, *markers: str, delta: Callable[[str], Delta] = ContentDelta) -> Steps[str | None]:
        """Pass text on up to the first of some markers, none of which may begin with another.

        Returns:
            The marker with the white space before it, which belongs to the markup if there is any; both have
            been read. ``None`` if the text ended first.
        """
        while True:
            found = _first_marker(self.unread, markers)
            if found is None and self.is_complete:
                if self.unread:
                    yield delta(self.take(len(self.unread)))
                return None
            start, end = found or (_certain_length(self.unread, markers), 0)
            text = self.unread[:start].rstrip() if markers else self.unread
            if text:
                yield delta(self.take(len(text)))
            if found is not None:
                return self.take(end - len(text))
            yield None


def _first_marker(text: str, markers: tuple[str, ...]) -> tuple[int, int] | None:
    """Where the first marker starts and ends."""
    found = ((text.find(marker), marker) for marker in markers)
    return min(((start, start + len(marker)) for start, marker in found if start >= 0), default=None)


def _certain_length(text: str, markers: tuple[str, ...]) -> int:
    """How much of a text comes before what may become a marker."""
    held = 0
    for marker in markers:
        lengths = range(min(len(marker) - 1, len(text)), held, -1)
        held = max(held, next((n for n in lengths if text.endswith(marker[:n])), 0))
    return len(text) - held
