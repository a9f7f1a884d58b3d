"""Where output goes: text that was asked for to stdout, everything about it to stderr.

So `octavo generate … > file` leaves only the model's words in the file. rich leaves out colours by itself
when the stream is no terminal.
"""

import contextlib
import io
import os
import sys
import unicodedata
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from octavo.diagnostics import best_effort_stderr
from octavo.errors import EngineError


class _Console(Console):
    """rich's console, which nothing printed on it can steer, and which keeps no broken pipe to itself.

    rich would take a reader who goes away for exit code 1.
    """

    def on_broken_pipe(self) -> None:  # type: ignore[explicit-override]  # typing.override needs 3.12
        raise BrokenPipeError

    def render(  # type: ignore[explicit-override]  # typing.override needs 3.12
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Everything that is drawn passes here: names from model files, paths, text of clients."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def stdout_console() -> Console:
    """For results."""
    return _Console(highlight=False)


def stderr_console() -> Console:
    """For tables, progress and errors; what stderr does not take is dropped."""
    return _Console(file=best_effort_stderr(), highlight=False)


def plain_console() -> Console:
    """Results without colour or style, whatever the terminal can do."""
    return _Console(highlight=False, no_color=True, color_system=None)


def print_error(message: str) -> None:
    """One line on stderr, whatever is in the message."""
    line = Text.assemble(("error:", "bold red"), " ", " ".join(message.split()))
    stderr_console().print(line, soft_wrap=True)


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


def prepare_streams() -> None:
    """Make the standard streams fit to be used, however the process was started.

    A closed stdin is an empty one, and what is said on a closed stderr is lost. Characters that the encoding
    of an output lacks are escaped; bytes of the input that are no text are kept apart as such, to be refused
    where it is read.

    Raises:
        EngineError: stdout is closed.
    """
    if sys.stdin is None:
        sys.stdin = io.StringIO()
    if sys.stdout is None:
        sys.stdout = io.StringIO()
        raise EngineError("stdout is closed; give the results somewhere to go, /dev/null if nowhere else")
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def discard_stdout() -> None:
    """Nobody takes what is left in it: Python's own flush at exit goes nowhere."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it is no file, so there is nothing to do
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
