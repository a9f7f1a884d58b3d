"""Keep the code readable in an afternoon: limits on files and functions, a budget of code lines per package.

A code line holds at least one token that is neither a comment nor a docstring, so documenting is free. The
table is in pyproject.toml under [tool.octavo.size]; raising a number there is a visible decision.
"""

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
STATEMENT_BORDER = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def code_lines(source: str) -> int:
    """Lines with code: no blank, comment or docstring (a string that is a statement by itself)."""
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (tokenize.NL, tokenize.COMMENT)
    ]
    lines: set[int] = set()
    for index, token in enumerate(tokens):
        if token.type in NOT_CODE:
            continue
        starts = index == 0 or tokens[index - 1].type in STATEMENT_BORDER
        if token.type == tokenize.STRING and starts and tokens[index + 1].type == tokenize.NEWLINE:
            continue
        lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def long_functions(source: str, limit: int) -> Iterator[tuple[str, int, int]]:
    """(name, line, length) of every function longer than ``limit`` raw lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > limit:
                yield node.name, node.lineno, length


def file_problems(file: Path, *, file_limit: int, function_limit: int) -> Iterator[str]:
    """What is too long in one file."""
    source = file.read_text(encoding="utf-8")
    name = file.relative_to(ROOT)
    raw_lines = source.count("\n")
    if raw_lines > file_limit:
        yield f"{name}: {raw_lines} lines, at most {file_limit}; split it by responsibility"
    if file.suffix == ".py" and name.parts[0] != "tests":  # a fixture may be one long table
        for function, line, length in long_functions(source, function_limit):
            yield f"{name}:{line}: {function} has {length} lines, at most {function_limit}"


def package_sizes(source_root: Path) -> dict[str, int]:
    """Code lines per package below ``source_root``; its own modules count as ``top``."""
    sizes: dict[str, int] = {}
    for file in source_root.rglob("*.py"):
        parts = file.relative_to(source_root).parts
        package = parts[0] if len(parts) > 1 else "top"
        sizes[package] = sizes.get(package, 0) + code_lines(file.read_text(encoding="utf-8"))
    return sizes


def budget_problems(sizes: dict[str, int], budgets: dict[str, int]) -> Iterator[str]:
    """Packages over their budget, or without one."""
    for package, lines in sorted(sizes.items()):
        budget = budgets.get(package)
        if budget is None:
            yield f"{package}: {lines} code lines and no budget in pyproject.toml"
        elif lines > budget:
            yield f"{package}: {lines} code lines, budget {budget}"


def main() -> int:
    """Print the table with ``--table``; print the problems; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print code lines per package")
    arguments = parser.parse_args()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["octavo"]["size"]
    sizes = package_sizes(ROOT / "src" / "octavo")
    if arguments.table:
        for package, lines in sorted(sizes.items()):
            print(f"{package:10} {lines:6} of {settings['code-lines'].get(package, 0)}")
        print(f"{'total':10} {sum(sizes.values()):6} of {sum(settings['code-lines'].values())}")
    files = [
        file
        for folder in settings["folders"]
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in settings["suffixes"]
    ]
    problems = [
        problem
        for file in files
        for problem in file_problems(
            file, file_limit=settings["file-lines"], function_limit=settings["function-lines"]
        )
    ]
    problems += budget_problems(sizes, settings["code-lines"])
    print("\n".join(problems) or "sizes: all within their limits")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
