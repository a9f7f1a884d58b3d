"""Nothing that is printed can steer a terminal, and stderr never ends a command."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from octavo.cli import terminal
from octavo.diagnostics import best_effort_stderr

EVIL = "\x1b]0;owned\x07 \x9b2J \x1b[31m"


@pytest.mark.parametrize("make", [terminal.stdout_console, terminal.plain_console, terminal.stderr_console])
def test_control_characters_are_shown_and_not_sent(make, capsys):
    console = make()
    table = Table(title=EVIL)
    table.add_row(Text(EVIL), EVIL)
    console.print(table)
    console.print(Text(EVIL), EVIL, soft_wrap=True)
    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert "\ufffd]0;owned" in printed
    assert not set(printed) & set("\x1b\x07\x9b")


def test_colours_still_reach_a_terminal():
    console = terminal._Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text(EVIL, style="red"))
    assert console.file.getvalue().startswith("\x1b[31m\ufffd]0;")


def test_a_stderr_that_fails_is_not_noticed(monkeypatch):
    class Broken(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

        def flush(self):
            raise OSError(28, "No space left on device")

    closed = io.StringIO()
    closed.close()
    for stderr in (Broken(), closed, None):
        monkeypatch.setattr("sys.stderr", stderr)
        stream = best_effort_stderr()
        assert stream.write("text") == 4
        stream.flush()
        assert not stream.isatty()
        terminal.print_error("lost")


def test_bytes_that_are_no_text_are_kept_apart(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff"), encoding="utf-8"))
    terminal.prepare_streams()
    assert terminal.sys.stdin.read() == "a\udcff"
