"""What the text of an answer turns out to be, piece by piece."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer's content."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call, in OpenAI's shape: the first one of a call names it, the others continue it."""

    index: int
    """Which call of the answer, from 0."""
    arguments: str = ""
    """More of the arguments' JSON text."""
    call_id: str | None = None
    """In the first delta of a call only, as is ``name``."""
    name: str | None = None


Delta = ContentDelta | ReasoningDelta | ToolCallDelta
