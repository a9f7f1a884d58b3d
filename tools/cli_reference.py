"""Write docs/cli.md from the command line's own --help. A test fails while the two differ."""

import io
from pathlib import Path

from rich.console import Console

from octavo.cli.main import COMMANDS, make_app

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 100
_HEAD = """# The command line

Made from `--help` by `make docs`. Flags are the fields of the dataclasses in `src/octavo/config.py` and
`src/octavo/sampling_params.py`.

Model output goes to stdout, everything about it to stderr. Exit codes: 0; 1 for an error; 2 for a wrong
command line, configuration or prompt; 130 after Ctrl-C; 141 when the reader of a pipe went away.
"""


def help_text(*command: str) -> str:
    """What `octavo COMMAND --help` prints, as plain text."""
    page = io.StringIO()
    console = Console(file=page, width=WIDTH, color_system=None, force_terminal=False)
    make_app().help_print([*command], console=console)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip()


def _section(*command: str) -> str:
    return f"## octavo {' '.join(command)}\n\n```text\n{help_text(*command)}\n```\n"


def _subcommands(name: str) -> list[tuple[str, str]]:
    """Commands below a command, if it has any."""
    return [(name, below) for below in make_app()[name] if not below.startswith("-")]


def reference() -> str:
    """The whole page."""
    sections = [_HEAD, f"```text\n{help_text()}\n```\n"]
    sections += [_section(*command) for name in COMMANDS for command in ((name,), *_subcommands(name))]
    return "\n".join(sections)


def main() -> None:
    """Write the page."""
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
