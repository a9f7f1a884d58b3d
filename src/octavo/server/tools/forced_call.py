"""The grammar of a call that has to be made: a JSON list of calls, each as its tool's schema says."""

import json
from collections.abc import Mapping
from typing import Any

from octavo.structured_outputs import StructuredOutputsParams

MAX_CALLS = 16
"""Of one answer: small models that have begun to list calls find no end by themselves."""
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def forced_calls(
    tools: Mapping[str, Mapping[str, Any]], *, max_calls: int = MAX_CALLS
) -> StructuredOutputsParams:
    """A constraint under which a text is a list of calls, at least one.

    Args:
        tools: schemas of the parameters by the names of the tools that may be called.
        max_calls: how many calls there may be.
    """
    definitions = {f"parameters_{i}": _moved(schema, i) for i, schema in enumerate(tools.values())}
    calls = [_call_schema(name, i) for i, name in enumerate(tools)]
    schema: dict[str, Any] = {
        "type": "array",
        "items": calls[0] if len(calls) == 1 else {"anyOf": calls},
        "minItems": 1,
        "maxItems": max_calls,
        "$defs": definitions,
    }
    return StructuredOutputsParams(json=json.dumps(schema), disable_any_whitespace=True)


def _call_schema(name: str, index: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/parameters_{index}"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Mapping[str, Any], index: int) -> object:
    """A tool's schema, with the references into itself changed to where it is now.

    A tool has the parameters that it declares and no others, unless it says so.
    """
    whole = {"type": "object", "additionalProperties": False, **schema} if schema else _NO_PARAMETERS
    return _with_references(whole, f"#/$defs/parameters_{index}")


def _with_references(value: object, root: str) -> object:
    if isinstance(value, Mapping):
        changed = {key: _with_references(item, root) for key, item in value.items()}
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            changed["$ref"] = root + reference.removeprefix("#")
        return changed
    if isinstance(value, list):
        return [_with_references(item, root) for item in value]
    return value
