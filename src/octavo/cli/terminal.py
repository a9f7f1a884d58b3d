"""Where output goes: text that was asked for to stdout, everything about it to stderr.

So `octavo generate … > file` leaves only the model's words in the file. rich leaves out colours by itself
when the stream is no terminal.
"""

import sys
import unicodedata

from rich.console import Console


class _Console(Console):
    """rich's console, except that a reader who goes away is reported and not swallowed as exit code 1."""

    def on_broken_pipe(self) -> None:  # type: ignore[explicit-override]  # typing.override needs 3.12
        raise BrokenPipeError


def stdout_console() -> Console:
    """For results."""
    return _Console(highlight=False)


def stderr_console() -> Console:
    """For tables, progress and errors."""
    return _Console(stderr=True, highlight=False)


def plain_console() -> Console:
    """Results without colour or style, whatever the terminal can do."""
    return _Console(highlight=False, no_color=True, color_system=None)


def visible(text: str) -> str:
    """Text that cannot steer a terminal: control characters but newline and tab become U+FFFD."""
    return "".join(
        "\ufffd" if unicodedata.category(character) == "Cc" and character not in "\n\t" else character
        for character in text
    )


def write_text(text: str) -> None:
    """Model output as it comes, at once and without markup or wrapping; a terminal gets it made `visible`."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
