"""What `octavo` exports, and that the page about it tells the truth."""

import re
from pathlib import Path

import pytest

import octavo

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-api.md"
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
    "RequestOutputKind",
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
def test_every_exported_name_exists_and_is_documented(name):
    value = getattr(octavo, name)
    assert value if name == "__version__" else (value.__name__, bool(value.__doc__)) == (name, True)


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


def test_the_examples_of_the_page_run(tiny_llama, capsys):
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        namespace: dict[str, object] = {}
        exec(compile(example.replace("smollm2-135m", str(tiny_llama())), str(PAGE), "exec"), namespace)
        assert capsys.readouterr().out.strip()  # a slow reader gets several outputs as one


def test_the_page_names_what_exists():
    named = set(re.findall(r"`octavo\.(\w+)`", PAGE.read_text()))
    assert named
    assert named <= set(octavo.__all__)
