"""Limits that keep Octavo small: configuration fields, environment variables, sizes."""

import ast
import importlib
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from octavo import config
from octavo.server.config import ServerConfig

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "octavo").rglob("*.py"))
MAX_CONFIG_FIELDS = 45
MAX_ENVIRONMENT_VARIABLES = 4


def config_classes() -> list[type]:
    return [
        *(
            value
            for value in vars(config).values()
            if is_dataclass(value) and value.__module__ == config.__name__
        ),
        ServerConfig,
    ]


def test_the_configuration_stays_within_45_fields():
    names = {
        field.name
        for cls in config_classes()
        if not cls.__name__.startswith("Resolved") and cls is not config.EngineConfig
        for field in fields(cls)
    }
    assert len(names) <= MAX_CONFIG_FIELDS


def test_every_configuration_field_is_documented():
    """The docstring below a field is its help text on the command line."""
    undocumented = []
    files = ("src/octavo/config.py", "src/octavo/server/config.py")
    for cls in (cls for file in files for cls in ast.parse((ROOT / file).read_text()).body):
        if isinstance(cls, ast.ClassDef) and cls.name not in ("EngineConfig", "ResolvedConfig"):
            for statement, following in zip(cls.body, [*cls.body[1:], None], strict=True):
                is_documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                if isinstance(statement, ast.AnnAssign) and not is_documented:
                    undocumented.append(f"{cls.name}.{statement.target.id}")
    assert undocumented == []


def test_few_environment_variables_are_read():
    pattern = re.compile(r"(?:environ(?:\.get)?|getenv)\s*[\[(]\s*[\"'](\w+)")
    variables = {name for file in SOURCES for name in pattern.findall(file.read_text())}
    assert len(variables) <= MAX_ENVIRONMENT_VARIABLES


def test_no_module_has_a_vague_name():
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "data", "info", "base"}
    assert [file.name for file in SOURCES if file.stem in vague] == []


def test_every_module_has_a_docstring():
    assert [str(file) for file in SOURCES if not ast.get_docstring(ast.parse(file.read_text()))] == []


def test_files_functions_and_packages_stay_within_their_limits():
    result = subprocess.run(
        [sys.executable, ROOT / "tools/size.py"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


def test_every_module_imports():
    for file in SOURCES:
        relative = file.relative_to(ROOT / "src").with_suffix("")
        if file.name not in ("__main__.py", "__init__.py"):
            importlib.import_module(".".join(relative.parts))
