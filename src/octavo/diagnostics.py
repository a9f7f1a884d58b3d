"""What people are told about the work: values that were wrong, and a stderr that never ends that work."""

import contextlib
import sys
from typing import TextIO, cast

MAX_SHOWN = 80
"""Characters of a wrong value that an error message shows."""


def shown(value: object) -> str:
    """A wrong value in an error message, however long it is."""
    try:
        text = repr(value)
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
