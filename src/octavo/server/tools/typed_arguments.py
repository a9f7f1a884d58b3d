"""`typed_arguments`: JSON from arguments that a model wrote as bare text, in the types the tool declares."""

import json
import re
from collections.abc import Iterable, Mapping

from octavo.server.tools.call_writer import ParameterSchema
from octavo.server.tools.json_call import json_value

_PYTHON_NAMES = {"True": True, "False": False, "None": None}


def read_pairs(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]] | None:
    """Names and values that follow each other in a text and fill it; ``None`` if anything else is in it.

    One match after the other: a single pattern for all of them could be made to try every way to divide them.
    """
    pairs, position = [], 0
    while match := pattern.match(text, position):
        pairs.append((match[1], match[2]))
        position = match.end()
    return None if text[position:].strip() else pairs


def typed_arguments(pairs: Iterable[tuple[str, str]], schema: ParameterSchema | None) -> str:
    """The arguments as JSON text.

    Args:
        pairs: names and values, as the model wrote them.
        schema: of the tool's parameters; ``None`` for a tool that nobody declared.
    """
    declared = schema.get("properties") if schema is not None else None
    properties = declared if isinstance(declared, Mapping) else {}
    arguments = {name: _typed(text, properties.get(name)) for name, text in pairs}
    return json.dumps(arguments, ensure_ascii=False)


def _typed(text: str, schema: object) -> object:
    """A string if that is declared, or nothing is; else the JSON or Python value it spells, or a string."""
    types = _types(schema)
    if text in _PYTHON_NAMES and types - {"string"}:
        return _PYTHON_NAMES[text]
    if types <= {"string"}:
        return text
    value = json_value(text)
    return text if value is None and text.strip() != "null" else value


def _types(schema: object) -> set[str]:
    """Names of the types that a schema allows; those it does not name, such as references, as "any"."""
    if not isinstance(schema, Mapping):
        return set()
    if isinstance(declared := schema.get("type"), str):
        return {declared}
    if isinstance(declared, list):
        return {name for name in declared if isinstance(name, str)}
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        return set().union(*(_types(option) for option in options))
    if isinstance(values := schema.get("enum"), list) and all(isinstance(v, str) for v in values):
        return {"string"}
    return {"any"} if schema else set()
