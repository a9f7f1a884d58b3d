"""`JsonScanner`: finds where a JSON value ends in text that arrives in pieces."""

_BRACKETS = {"{": "}", "[": "]"}
_OUTSIDE_STRINGS = frozenset(' \t\r\n,:+-."0123456789abcdefghijklmnopqrstuvwxyzE')
"""What may stand between brackets and strings: numbers, literals and punctuation."""


class JsonScanner:
    """Follows brackets and strings; whether numbers and commas are where they belong is not its business.

    Attributes:
        is_broken: whether a character came that cannot be JSON; it was not read.
        has_stopped: whether it is broken, or the last `read` found the bracket that it was to find.
    """

    def __init__(self, opened: str = "") -> None:
        """Start before a value, or inside of the brackets ``opened``."""
        self.is_broken = False
        self.has_stopped = False
        self._closing = [_BRACKETS[bracket] for bracket in opened]
        self._in_string = False
        self._is_escaped = False

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return len(self._closing)

    def read(self, text: str, start: int, stop_depths: tuple[int, ...]) -> int:
        """Read on from ``start``: until a bracket leads to one of the depths, it is broken, or the text ends.

        Returns:
            The position behind the last character read.
        """
        self.has_stopped = self.is_broken
        if self.is_broken:
            return start
        for position in range(start, len(text)):
            before = self.depth
            if not self._advance(text[position]):
                self.is_broken = self.has_stopped = True
                return position
            if self.depth != before and self.depth in stop_depths:
                self.has_stopped = True
                return position + 1
        return len(text)

    def _advance(self, character: str) -> bool:
        if self._in_string:
            self._advance_in_string(character)
        elif character == '"':
            self._in_string = True
        elif character in _BRACKETS:
            self._closing.append(_BRACKETS[character])
        elif self._closing and character == self._closing[-1]:
            self._closing.pop()
        else:
            return character in _OUTSIDE_STRINGS
        return True

    def _advance_in_string(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_string = False
