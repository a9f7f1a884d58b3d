"""What `octavo` exports."""

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
