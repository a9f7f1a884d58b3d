"""`EngineState`: the life of an engine, and what it answers in each part of it."""

from enum import StrEnum


class EngineState(StrEnum):
    """STARTING → READY → DRAINING → STOPPED, or DEAD from any of them but STOPPED."""

    STARTING = "starting"
    """The model is being loaded; requests wait for it."""
    READY = "ready"
    DRAINING = "draining"
    """Finishing what is under way; new requests are refused."""
    STOPPED = "stopped"
    DEAD = "dead"
    """Stopped by an error: every stream was ended, every call raises `EngineDeadError`."""

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return self in {EngineState.STOPPED, EngineState.DEAD}
