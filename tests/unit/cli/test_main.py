"""The command line's edge: help, versions, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cli import main as entry
from octavo.errors import (
    ConfigError,
    ContextLengthError,
    InvariantError,
    KernelUnavailableError,
    ModelLoadError,
    ModelNotFoundError,
)


def octavo(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "octavo", *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_names_every_command(capsys):
    assert entry.run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("generate", "chat", "explain", "doctor", "bench", "fetch"):
        assert f"│ {command} " in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["generate", "chat", "explain", "doctor", "bench", "fetch"])
def test_every_command_has_help(command, capsys):
    assert entry.run([command, "--help"]) == 0
    assert f"octavo {command}" in capsys.readouterr().out


def test_version(capsys):
    assert entry.run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == entry.octavo_version()


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["explain", "--blok-size", "4"], ["explain", "--block-size", "x"]]
)
def test_a_wrong_command_line_exits_with_2(arguments, capsys):
    assert entry.run(arguments) == entry.EXIT_USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("block_size is 7"), 2),
        (ContextLengthError("the prompt has 20 tokens"), 2),
        (ModelNotFoundError("x.gguf: no such file"), 2),
        (KernelUnavailableError("instruction set neon cannot run here"), 2),
        (ModelLoadError("x.gguf: [truncated] after 3 bytes"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes_and_one_line(error, code, monkeypatch, capsys):
    def fail(**_options: object) -> None:
        raise error

    monkeypatch.setattr("octavo.cli.fetch.fetch", fail)
    assert entry.run(["fetch"]) == code
    text = capsys.readouterr().err.strip()
    assert "\n" not in text
    assert "interrupted" in text if code == 130 else str(error) in text


def test_a_bug_is_not_hidden(monkeypatch):
    def fail(**_options: object) -> None:
        raise InvariantError("ref_cnt is -1")

    monkeypatch.setattr("octavo.cli.fetch.fetch", fail)
    with pytest.raises(InvariantError):
        entry.run(["fetch"])


def test_a_reader_that_goes_away_is_no_error():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed:
        result = subprocess.run(
            [sys.executable, "-m", "octavo", "explain"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (result.returncode, result.stderr) == (entry.EXIT_BROKEN_PIPE, "")


def test_python_dash_m_works():
    result = octavo("--help")
    assert result.returncode == 0
    assert "Usage: octavo COMMAND" in result.stdout


def test_an_error_line_cannot_steer_a_terminal(monkeypatch, capsys):
    def fail(**_options: object) -> None:
        raise ModelLoadError("/tmp/\x1b]0;owned\x07\nsecond\x9b2J [bold]: no such file")

    monkeypatch.setattr("octavo.cli.fetch.fetch", fail)
    assert entry.run(["fetch"]) == 1
    assert capsys.readouterr().err == "error: /tmp/\ufffd]0;owned second\ufffd2J [bold]: no such file\n"


def test_a_wrong_argument_is_shown_harmless(capsys):
    assert entry.run(["--fo\x1b]0;owned\x07"]) == 2
    assert "\x1b]" not in capsys.readouterr().err


CLOSED_OR_FULL = [
    # (shell redirection, exit code, what stderr ends with)
    (">&-", 1, "stdout is closed"),
    (">/dev/full", 1, "No space left on device"),
    ("2>&-", 0, ""),
    ("2>/dev/full", 0, ""),
    ("<&-", 0, ""),
]


@pytest.mark.parametrize(("redirection", "code", "message"), CLOSED_OR_FULL)
def test_streams_that_are_closed_or_full(redirection, code, message):
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f'"{sys.executable}" -m octavo explain {redirection}'
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert message in result.stderr
    assert result.stderr.count("\n") <= 1


def test_an_error_that_cannot_be_told_keeps_its_exit_code():
    command = f'"{sys.executable}" -m octavo explain --num-blocks x 2>&-'
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 2


def test_an_encoding_that_lacks_characters_is_no_error():
    result = octavo("explain", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.isascii()
