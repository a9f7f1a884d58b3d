"""JSON from files that somebody else made: bounded in size and depth, each key once, every error one line."""

import json
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.models.quoting import one_line, quote


def read_json_file(path: Path, *, max_bytes: int) -> Mapping[str, object]:
    """The object in a JSON file.

    Raises:
        ModelLoadError: the file is not there, too large, or holds no JSON object.
    """
    try:
        if not path.is_file():
            raise ModelLoadError(f"{path}: no such file")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelLoadError(f"{path}: cannot be read: {reason}") from None
    if len(content) > max_bytes:
        raise ModelLoadError(f"{path}: has more than {max_bytes:,} bytes, too many for such a file")
    return parse_json(content, origin=str(path))


def parse_json(content: bytes, *, origin: str) -> Mapping[str, object]:
    """The JSON object in ``content``, whose size the caller has bounded.

    Args:
        content: UTF-8.
        origin: where it comes from, for error messages.

    Raises:
        ModelLoadError: it is no JSON object, names a key twice, or is nested too deeply.
    """
    try:
        value = json.loads(content.decode(), object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise ModelLoadError(f"{origin}: not valid JSON: it is not UTF-8 text") from None
    except RecursionError:
        raise ModelLoadError(f"{origin}: not valid JSON: it is nested too deeply") from None
    except ValueError as error:  # bad syntax, a key that is there twice, a number of too many digits
        raise ModelLoadError(f"{origin}: not valid JSON: {one_line(str(error))}") from None
    if not isinstance(value, dict):
        raise ModelLoadError(f"{origin}: must hold a JSON object, found a {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {quote(twice)} is there twice")
    return found
