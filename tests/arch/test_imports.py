"""What importing a part of Octavo loads, measured in fresh interpreters."""

import subprocess
import sys

import pytest

HEAVY = (
    "numpy", "torch", "tokenizers", "jinja2", "huggingface_hub", "gguf", "safetensors", "fastapi", "pydantic",
    "uvicorn",
)  # fmt: skip


def modules_loaded_by(code: str) -> set[str]:
    """Top-level names of everything that is loaded after running ``code``."""
    report = (
        "import sys; print(*{name.partition('.')[0] for name in sys.modules}, sep='\\n', file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(result.stderr.split())


IMPORT_ALL = """
import importlib, pkgutil
import {package} as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module("{package}." + module.name)
"""


@pytest.mark.parametrize(
    "code",
    [
        "import octavo",
        "from octavo import SamplingParams, EngineConfig, RequestOutput",
        IMPORT_ALL.format(package="octavo.kv"),
        IMPORT_ALL.format(package="octavo.sched"),
    ],
    ids=["octavo", "public names", "kv", "sched"],
)
def test_the_core_is_standard_library_only(code):
    loaded = modules_loaded_by(code)
    foreign = loaded - set(sys.stdlib_module_names) - {"octavo", "__main__", "__mp_main__"}
    assert {name for name in foreign if not name.startswith(("_", "sitecustomize"))} == set()


def test_the_engine_loads_no_numpy():
    code = "from octavo import AsyncEngine\n" + IMPORT_ALL.format(package="octavo.engine")
    assert modules_loaded_by(code).isdisjoint({"numpy", "torch"})


@pytest.mark.parametrize(
    "arguments", [["--help"], ["generate", "--help"], ["chat", "--help"], ["serve", "--help"], ["explain"]]
)
def test_help_and_explain_load_nothing_heavy(arguments):
    loaded = modules_loaded_by(f"from octavo.cli.main import run; run({arguments!r})")
    assert loaded.isdisjoint(HEAVY)


def test_the_server_loads_no_numpy_and_the_engine_no_http():
    assert modules_loaded_by("import octavo.server.app, octavo.server.lifecycle").isdisjoint(
        {"numpy", "torch", "tokenizers"}
    )
    assert modules_loaded_by("import octavo.llm").isdisjoint({"fastapi", "pydantic", "starlette", "uvicorn"})


def test_running_a_model_needs_no_torch_and_no_gguf_package():
    loaded = modules_loaded_by("import octavo.llm")
    assert loaded.isdisjoint({"torch", "transformers", "gguf", "safetensors", "requests", "yaml"})
