"""`Activity`: what the engine's thread is doing, for others to see when it does not come back from it."""

from enum import StrEnum
from typing import NamedTuple


class ActivityKind(StrEnum):
    """What the engine's thread is doing."""

    IDLE = "idle"
    """Waiting for something to do."""
    BETWEEN_STEPS = "between steps"
    """Taking requests and commands in, deciding the next step, handing outputs out."""
    STEP = "step"
    """Waiting for the runner."""


class Activity(NamedTuple):
    """Replaced as a whole, so that any thread may read it."""

    kind: ActivityKind
    since: float
    """On the engine's clock [s]."""
    step: int = 0
    num_requests: int = 0
    """In the step."""
    num_tokens: int = 0
    """In the step."""
