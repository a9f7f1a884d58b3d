"""`LiteralText`: marks text that came from outside, so that nothing in it is taken for a control token.

A chat template writes control tokens and what people typed into one string. Before that, a mark goes into
every spelling of a control token that a message holds, behind its first character: it is then no longer the
spelling. The encoder takes the marks out again once it has found the control tokens that are left, which
are the template's own.
"""

import re
from collections.abc import Iterable, Mapping

from octavo.errors import InvalidRequestError

MARK = "\ufdd0"
"""A noncharacter, which Unicode keeps free for such use within a program; found in a message, it is lost."""


class LiteralText:
    """Marks the control tokens of one vocabulary; those of one character alone cannot be marked."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        self._spellings = frozenset(token for token in control_tokens if len(token) > 1)
        self._lengths = sorted({len(spelling) for spelling in self._spellings})
        first_characters = "".join(sorted({spelling[0] for spelling in self._spellings}))
        self._may_start = re.compile(f"[{re.escape(first_characters)}]") if first_characters else None

    def mark(self, value: object) -> object:
        """The value with every text in it marked; lists and mappings are copied, other values kept.

        Raises:
            InvalidRequestError: it is nested too deeply.
        """
        try:
            return self._marked(value)
        except RecursionError:
            raise InvalidRequestError("the messages are nested too deeply", param="messages") from None

    def _marked(self, value: object) -> object:
        if isinstance(value, str):
            return self._marked_text(value)
        if isinstance(value, Mapping):
            return {self._marked(key): self._marked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._marked(item) for item in value]
        return value

    def _marked_text(self, text: str) -> str:
        def marked(start: re.Match[str]) -> str:
            at = start.start()
            is_spelling = any(text[at : at + length] in self._spellings for length in self._lengths)
            return start[0] + MARK if is_spelling else start[0]

        return self._may_start.sub(marked, text) if self._may_start else text
