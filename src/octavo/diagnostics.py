"""What people are told about the work: values that were wrong, and a stderr that never ends that work."""

import contextlib
import itertools
import reprlib
import sys
from typing import TextIO, cast

MAX_SHOWN = 80
"""Characters of a wrong value that an error message shows."""


class _Beginning(reprlib.Repr):
    """Writes out only the beginning of a value: a client may have sent millions of items, or many levels."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = MAX_SHOWN // 2
        self.maxstring = self.maxother = self.maxlong = 4 * MAX_SHOWN

    def repr_dict(self, x: dict[object, object], level: int) -> str:  # type: ignore[explicit-override]
        """Without sorting the keys."""
        if level <= 0:
            return "{...}"
        items = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in itertools.islice(x.items(), self.maxlist)
        ]
        return f"{{{', '.join(items + ['...'] * (len(x) > self.maxlist))}}}"


def shown(value: object) -> str:
    """A wrong value in an error message, however long it is."""
    try:
        text = _Beginning().repr(value)
    except ValueError:  # Python writes out no integer of more than 4,300 digits
        return "an integer of thousands of digits"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class BestEffortStderr:
    """Writes to whatever `sys.stderr` is at the moment; what cannot be written is dropped.

    For tables, progress and error lines: a full disk or a closed stream must not end what they talk about.
    """

    def write(self, text: str) -> int:
        """Write, if that is possible; returns the length all the same."""
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
                sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if that is possible."""
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()

    def isatty(self) -> bool:
        """Whether somebody looks at it."""
        with contextlib.suppress(OSError, ValueError):
            return sys.stderr is not None and sys.stderr.isatty()
        return False

    def __getattr__(self, name: str) -> object:
        return getattr(sys.stderr, name)


def best_effort_stderr() -> TextIO:
    """A stream for `rich.console.Console` that never fails."""
    return cast("TextIO", BestEffortStderr())
