"""Fixtures shared by all tests: tiny random models, and the default model if this machine has it."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.models.cache_folder import cache_folder
from octavo.models.default_model import DEFAULT_MODEL, find_cached

sys.path.append(str(Path(__file__).parent / "fixtures"))  # modules that only tests use

from tiny_models import make_tiny_llama
from tool_modules import load_tool

MODEL_FIXTURES = Path(__file__).parent / "fixtures" / "models"
ARCHITECTURES = sorted(folder.name for folder in MODEL_FIXTURES.iterdir() if folder.is_dir())


def pytest_sessionstart() -> None:
    """Take Ctrl-C as Python does, even if the tests were started with it ignored (``make test &``)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``tiny_llama(**options)``: the path of a random model made with these options of `make_tiny_llama`."""
    folder = tmp_path_factory.mktemp("tiny_models")
    made: dict[str, Path] = {}

    def make(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = make_tiny_llama(folder / f"tiny-{len(made)}.gguf", **options)
        return made[key]

    return make


@pytest.fixture(scope="session")
def tiny_folder(
    tiny_llama: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """``tiny_folder(**options)``: `tiny_llama` in float32 as a Hugging Face folder of the caller's own."""
    converter = load_tool("gguf_to_huggingface")

    def make(*, num_shards: int = 1, **options: Any) -> Path:
        folder = tmp_path_factory.mktemp("tiny_folder")
        converter.convert(tiny_llama(**{"quantization": "F32", **options}), folder, num_shards=num_shards)
        return folder

    return make


@pytest.fixture(scope="session", params=ARCHITECTURES)
def tiny_architecture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of each model that ``fixtures/make_model_fixtures.py`` made, in turn."""
    folder = tmp_path_factory.mktemp("tiny_architectures") / request.param
    shutil.copytree(MODEL_FIXTURES / request.param, folder)
    shutil.copy(MODEL_FIXTURES / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model: OCTAVO_MODEL, or the cache folder. Skips if it is in neither; never fetches."""
    configured = os.environ.get("OCTAVO_MODEL")
    path = Path(configured) if configured else find_cached(DEFAULT_MODEL, cache_folder())
    if path is None or not path.is_file():
        pytest.skip(f"{DEFAULT_MODEL.name} is not here: run 'make demo', or set OCTAVO_MODEL to its file")
    return path


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma 3 270M in Q4_K_M, for its tokenizer: OCTAVO_GEMMA. Skips if that is not set."""
    configured = os.environ.get("OCTAVO_GEMMA")
    if configured is None:
        pytest.skip("OCTAVO_GEMMA does not name a Gemma 3 270M GGUF file")
    return Path(configured)
