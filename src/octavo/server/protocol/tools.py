"""Tools in requests, and calls of them in answers."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from octavo.server.protocol.body import ListOf, RequestBody

MAX_TOOLS = 128

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class FunctionDefinition(RequestBody):
    """A function that the model may call."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments, an object; none if omitted."""
    strict: bool | None = None
    """Accepted. Arguments follow the schema where ``tool_choice`` forces a call, whatever is set here."""


class Tool(RequestBody):
    """A tool, of the only kind there is."""

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(RequestBody):
    """A function by its name."""

    name: str


class NamedToolChoice(RequestBody):
    """The tool that has to be called."""

    type: Literal["function"] = "function"
    function: NamedFunction


Tools = Annotated[ListOf[Tool], Field(max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


class FunctionCall(BaseModel):
    """What is called, and with what."""

    name: str | None = None
    """In a stream in the first delta of a call only."""
    arguments: str
    """JSON text. The model may have written something that is no JSON: check it."""


class ToolCall(BaseModel):
    """One call."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ToolCallChunk(BaseModel):
    """What is new in one call."""

    index: int
    """Which call of the answer."""
    id: str | None = None
    """In the first delta of a call only, as is ``type``."""
    type: Literal["function"] | None = None
    function: FunctionCall
