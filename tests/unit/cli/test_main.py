"""The command line's edge: help, versions, exit codes."""

import os
import subprocess
import sys

import pytest

from octavo.cli import main as entry
from octavo.errors import ConfigError, InvariantError, ModelLoadError


def octavo(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "octavo", *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_names_every_command(capsys):
    assert entry.run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("generate", "chat", "explain", "doctor", "fetch"):
        assert f"│ {command} " in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["generate", "chat", "explain", "doctor", "fetch"])
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
