"""The shape that a client wants the text to have."""

from typing import Any, Literal

from pydantic import Field

from octavo.server.protocol.body import ListOf, RequestBody


class JsonSchema(RequestBody):
    """A JSON schema and what the OpenAI API wants to know about it."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None
    """Accepted; the schema is always kept to."""


class ResponseFormat(RequestBody):
    """As in the OpenAI API."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    """With the type json_schema."""


class StructuredOutputs(RequestBody):
    """As in vLLM: exactly one constraint."""

    json_: str | dict[str, Any] | None = Field(None, alias="json")
    """A JSON schema."""
    json_object: bool | None = None
    """Any JSON object."""
    regex: str | None = None
    choice: ListOf[str] | None = None
    grammar: str | None = None
    """As Lark or GBNF."""
    disable_any_whitespace: bool = False
