"""Engines of a random model that is everywhere and of the real one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from same_bits import Session, SessionFactory

from octavo.build import build
from octavo.config import EngineConfig


@pytest.fixture(scope="module", params=["tiny", pytest.param("default", marks=pytest.mark.model)])
def model_path(request: pytest.FixtureRequest, tiny_llama: Callable[..., Path]) -> Path:
    """A random model that is everywhere, in the real one's quantisation, and the real one."""
    if request.param == "tiny":
        return tiny_llama(quantization="Q4_1", embedding_quantization="Q8_0")
    return request.getfixturevalue("default_model_path")


@pytest.fixture
def tight_num_blocks(model_path: Path, tiny_llama: Callable[..., Path]) -> int:
    """Blocks of 16 that hold the longest of `TEXTS` and its output, and not all of them at once."""
    is_tiny = model_path.parent == tiny_llama().parent
    return 18 if is_tiny else 9


@pytest.fixture
def session(model_path: Path) -> Iterator[SessionFactory]:
    opened: list[Session] = []

    def make(**options: object) -> Session:
        defaults = {"model": str(model_path), "kernels": "native", "num_threads": 2}
        sizes = {"max_model_len": 512, "kv_cache_memory": "64MiB"}
        opened.append(Session(build(EngineConfig.from_options({**defaults, **sizes, **options}))))
        return opened[-1]

    yield make
    for each in opened:
        each.built.engine.close()
