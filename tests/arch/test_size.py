"""tools/size.py counts what it says it counts."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "size.py"


@pytest.fixture(scope="module")
def size():
    spec = importlib.util.spec_from_file_location("size", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# a comment\n\n", 0),
        ('"""A docstring\nof two lines."""\nx = 1\n', 1),
        ('x = 1\n"""About x."""\n', 1),
        ('def f():\n    """Says what."""\n    return """text\n    that is a value"""\n', 3),
        ("x = [\n    1,  # one\n    # two\n]\n", 3),
        ("x = 1; y = 2\n", 1),
    ],
)
def test_documentation_is_free(size, source, lines):
    assert size.code_lines(source) == lines


def test_long_functions_are_found_wherever_they_are(size):
    source = "class A:\n    async def long(self):\n" + "        x = 1\n" * 60
    assert list(size.long_functions(source, 60)) == [("long", 2, 61)]
    assert list(size.long_functions(source, 61)) == []


def test_a_package_needs_a_budget_and_keeps_it(size):
    problems = list(size.budget_problems({"kv": 10, "new": 1}, {"kv": 9}))
    assert problems == ["kv: 10 code lines, budget 9", "new: 1 code lines and no budget in pyproject.toml"]


def test_nested_packages_count_for_the_top_one(size, tmp_path):
    (tmp_path / "kv" / "inner").mkdir(parents=True)
    (tmp_path / "top.py").write_text("x = 1\n")
    (tmp_path / "kv" / "inner" / "a.py").write_text("x = 1\ny = 2\n")
    assert size.package_sizes(tmp_path) == {"top": 1, "kv": 2}
