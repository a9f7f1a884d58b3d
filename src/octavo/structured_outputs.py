"""`StructuredOutputsParams`: the shape that a generated text must have, under vLLM's names."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from octavo.diagnostics import shown
from octavo.errors import InvalidRequestError

MAX_CONSTRAINT_LENGTH = 131_072
"""Characters of a schema, a regular expression, a grammar, or of all choices together."""
MAX_CHOICES = 1024

CONSTRAINT_AT_FAULT = "structured_outputs: "
"""Begins the error of a continuation that its constraint has ended: the request is at fault."""

_PARAM = "structured_outputs"


@dataclass(frozen=True, kw_only=True, slots=True)
class StructuredOutputsParams:
    """Exactly one constraint on the text of a request, and how to read it. Whatever is generated fits it.

    A text that ends at ``max_tokens`` or at a stop string is the beginning of one that fits.

    Raises:
        InvalidRequestError: no constraint or several, one of the wrong type, or one that is too long.
    """

    json: str | Mapping[str, object] | None = None
    """A JSON schema; kept as JSON text."""
    json_object: bool | None = None
    """Any JSON object."""
    regex: str | None = None
    """A regular expression that the whole text matches."""
    choice: Sequence[str] | None = None
    """The texts to choose from."""
    grammar: str | None = None
    """A context-free grammar, as Lark or as GBNF."""
    disable_any_whitespace: bool = False
    """In JSON, allow no white space between the tokens of the syntax."""

    def __post_init__(self) -> None:
        if self.json_object is False:
            object.__setattr__(self, "json_object", None)
        given = [f.name for f in fields(self)[:-1] if getattr(self, f.name) is not None]
        if len(given) != 1:
            raise _wrong(
                f"needs exactly one of json, json_object, regex, choice and grammar, "
                f"got {' and '.join(given) or 'none'}"
            )
        _check_flag("json_object", self.json_object, None)
        _check_flag("disable_any_whitespace", self.disable_any_whitespace)
        # Copies, and hashable: equal parameters are one grammar.
        if self.json is not None:
            object.__setattr__(self, "json", _schema_text(self.json))
        if self.choice is not None:
            object.__setattr__(self, "choice", _checked_choices(self.choice))
        for name in ("regex", "grammar"):
            if (text := getattr(self, name)) is not None:
                _check_text(name, text)

    @property
    def kind(self) -> str:
        """The name of the constraint that is given."""
        return next(f.name for f in fields(self) if getattr(self, f.name) is not None)


def _wrong(problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"structured_outputs {problem}", param=_PARAM)


def _check_flag(name: str, value: object, *others: object) -> None:
    if not isinstance(value, bool) and value not in others:
        raise _wrong(f"needs {name} to be true or false, got {shown(value)}")


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or not text:
        raise _wrong(f"needs {name} to be a text, at least one character, got {shown(text)}")
    if len(text) > MAX_CONSTRAINT_LENGTH:
        raise _wrong(
            f"allows {name} at most {MAX_CONSTRAINT_LENGTH} characters, got {len(text)}; simplify it"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _wrong(f"needs {name} to be valid Unicode; it holds a lone surrogate") from None


def _schema_text(schema: object) -> str:
    """The JSON text of a schema, the order of its keys kept: properties are generated in that order."""
    try:
        if isinstance(schema, str):
            _check_text("json", schema)
            text, schema = schema, json.loads(schema)
        else:
            text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _wrong(f"needs json to be a JSON schema, but it is no JSON ({error})") from None
    if not isinstance(schema, Mapping | bool):
        raise _wrong(f"needs json to be a JSON schema, an object, got {shown(schema)}")
    _check_text("json", text)
    return text


def _checked_choices(choices: object) -> tuple[str, ...]:
    if isinstance(choices, str | bytes) or not isinstance(choices, Sequence) or not choices:
        raise _wrong(f"needs choice to be a list of texts, at least one, got {shown(choices)}")
    if len(choices) > MAX_CHOICES:
        raise _wrong(f"allows at most {MAX_CHOICES} entries in choice, got {len(choices)}")
    for text in choices:
        _check_text("every entry of choice", text)
    _check_text("choice", "".join(choices))
    return tuple(choices)
