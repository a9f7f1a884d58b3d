"""What `octavo` exports, and how little importing it loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import octavo

EXPECTED = {
    "LLM",
    "AsyncEngine",
    "SamplingParams",
    "EngineConfig",
    "ModelConfig",
    "CacheConfig",
    "SchedulerConfig",
    "RunnerConfig",
    "RequestOutput",
    "CompletionOutput",
    "Logprob",
    "build_engine",
    "OctavoError",
    "InvalidRequestError",
    "EngineDeadError",
    "__version__",
}


def test_what_is_promised_is_there():
    assert set(octavo.__all__) >= EXPECTED
    assert dir(octavo) == sorted(octavo.__all__)


@pytest.mark.parametrize("name", octavo.__all__)
def test_every_exported_name_exists(name):
    value = getattr(octavo, name)
    assert name == "__version__" or value.__name__ == name


def test_every_error_is_exported():
    import octavo.errors as errors

    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.OctavoError)
    }
    assert defined <= set(octavo.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'octavo' has no attribute 'nothing'"):
        octavo.nothing  # noqa: B018


@pytest.mark.parametrize(
    "statement",
    [
        "import octavo",
        "from octavo import SamplingParams, EngineConfig, RequestOutput",
        "from octavo import AsyncEngine",
    ],
)
def test_importing_loads_neither_numpy_nor_torch(statement):
    code = f"{statement}\nimport sys\nprint(sorted({{'numpy', 'torch'}} & sys.modules.keys()))"
    source = str(Path(octavo.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert result.stdout.strip() == "[]"
