"""`octavo explain` as it is drawn."""

import io

import pytest
from rich.console import Console

from octavo.cli import explain as explain_command
from octavo.cli.main import run
from octavo.cli.replay import walk_through


def drawn(*, width: int, plain: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for time, picture in enumerate(walk_through()):
        console.print(explain_command.draw(time, picture, plain=plain))
    return console.file.getvalue().splitlines()


def test_it_fits_eighty_columns_without_folding_a_row():
    lines = drawn(width=80)
    assert max(map(len, lines)) <= 80
    assert sum("hit, shared, findable" in line for line in lines) == 2


def test_the_walk_through_shows_tables_queue_and_eviction(capsys):
    assert run(["explain", "--plain"]) == 0
    text = capsys.readouterr().out
    assert "A = 0 1 2   B = 0 1 3" in text
    assert "3 2 1 0   (front first)" in text
    assert "Only now block 2 forgets “ABCD EFGH IJKL”." in text
    assert "\x1b" not in text
    assert "─" not in text


def test_prompts_replace_the_walk_through(capsys):
    assert run(["explain", "--block-size", "2", "--num-blocks", "3", "abcd", "abXY"]) == 0
    text = capsys.readouterr().out
    assert "2 of its 4 tokens are cached" in text


def test_many_unused_blocks_are_counted_not_listed(capsys):
    assert run(["explain", "--num-blocks", "100", "abcd"]) == 0
    assert "91 more never used" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--num-blocks", "0", "a"], 2, "num_blocks must be at least 1, got 0"),
        (["--block-size", "0", "a"], 2, "block_size must be at least 1, got 0"),
        (["--num-blocks", "1", "abcde"], 2, "request A has 5 tokens and needs 2 blocks of 4, got 1"),
        (["--model", "/no/such.gguf", "a"], 2, "/no/such.gguf: no such file"),
    ],
)
def test_errors_are_one_line(arguments, code, message, capsys):
    assert run(["explain", *arguments]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_control_characters_cannot_reach_the_terminal():
    assert explain_command._drawable(b"\x1b[2J a\n\xff") == "\ufffd[2J␣a⏎\ufffd"
