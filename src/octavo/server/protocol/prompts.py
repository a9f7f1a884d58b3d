"""`Prompts`: a text, token ids, or several of either."""

import itertools
from typing import Annotated, cast

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

_Forms = str | list[str] | list[int] | list[list[int]]


def _checked(value: object) -> _Forms:
    """Look at each type once: a list may hold millions of items, and every complaint about one costs more."""
    if isinstance(value, str):
        return value
    kinds: set[type] = set(map(type, value)) if isinstance(value, list) else {object}
    allowed: set[type] = {int}
    if kinds == {list}:
        kinds = set(map(type, itertools.chain.from_iterable(cast("list[list[object]]", value))))
    elif kinds == {str}:
        allowed = {str}
    if not kinds <= allowed:
        raise PydanticCustomError(
            "prompt_type", "must be a string, a list of strings, a list of token ids or a list of such lists"
        )
    return cast("_Forms", value)


Prompts = Annotated[_Forms, PlainValidator(_checked, json_schema_input_type=_Forms)]
