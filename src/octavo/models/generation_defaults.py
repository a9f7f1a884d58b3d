"""What a model's files recommend for generation: sampling parameters, and the tokens that end a text."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.gguf_metadata import Metadata
from octavo.models.json_document import read_json_file
from octavo.models.quoting import quote
from octavo.sampling_params import SamplingParams

SamplingDefaults = Mapping[str, int | float]
"""Values of `SamplingParams` by the names of its fields."""

_MAX_BYTES = 1 << 20
_MOST_END_TOKENS = 64

_FROM_JSON: Mapping[str, str] = MappingProxyType(
    {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repetition_penalty",
        "max_new_tokens": "max_tokens",
    }
)
_FROM_GGUF: Mapping[str, str] = MappingProxyType(
    {
        "general.sampling.temp": "temperature",
        "general.sampling.top_p": "top_p",
        "general.sampling.top_k": "top_k",
        "general.sampling.min_p": "min_p",
        "general.sampling.penalty_repeat": "repetition_penalty",
    }
)


def json_sampling_defaults(folder: Path) -> SamplingDefaults:
    """The recommendations in ``generation_config.json``, if there is one.

    Raises:
        ModelLoadError: a value is of the wrong type or out of range.
    """
    path = folder / "generation_config.json"
    return _checked(_read(path), _FROM_JSON, path)


def gguf_sampling_defaults(metadata: Metadata) -> SamplingDefaults:
    """The recommendations in a GGUF file.

    Raises:
        ModelLoadError: a value is of the wrong type or out of range.
    """
    return _checked(metadata.values, _FROM_GGUF, metadata.path)


def end_token_ids(folder: Path, config: Mapping[str, object]) -> tuple[int, ...]:
    """Tokens that end a text: ``eos_token_id`` of ``generation_config.json`` and of ``config.json``.

    Raises:
        ModelLoadError: they are neither an id nor a list of ids.
    """
    path = folder / "generation_config.json"
    return (*_ids(_read(path), path), *_ids(config, folder / "config.json"))


def _read(path: Path) -> Mapping[str, object]:
    return read_json_file(path, max_bytes=_MAX_BYTES) if path.is_file() else {}


def _ids(values: Mapping[str, object], path: Path) -> Iterable[int]:
    value = values.get("eos_token_id")
    ids: list[object] = [] if value is None else [*value] if isinstance(value, list) else [value]
    found = [token_id for token_id in ids if isinstance(token_id, int) and token_id >= 0]
    if len(found) < len(ids) or len(ids) > _MOST_END_TOKENS:
        raise ModelLoadError(f"{path}: eos_token_id must be an id or a list of ids, found {quote(value)}")
    return found


def _checked(values: Mapping[str, object], names: Mapping[str, str], path: Path) -> SamplingDefaults:
    found = {ours: values[name] for name, ours in names.items() if values.get(name) is not None}
    try:
        params = SamplingParams(**found)  # type: ignore[arg-type]
    except InvalidRequestError as error:
        raise ModelLoadError(f"{path}: a default for generation is wrong: {error}") from None
    return MappingProxyType({name: getattr(params, name) for name in found})
