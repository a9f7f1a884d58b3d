"""`AbortCause`: why a request was ended before it was done."""

from enum import StrEnum


class AbortCause(StrEnum):
    """For logs and counters; the caller sees finish reason "abort" in every case."""

    REQUESTED = "requested"
    """Somebody called ``abort``."""
    CLIENT_GONE = "client_gone"
    """Nobody reads its stream any more."""
    SIBLING_FAILED = "sibling_failed"
    """Another part of what it belongs to failed, so nobody wants it any more."""
    TIMEOUT = "timeout"
    """It waited too long to be admitted."""
    SHUTDOWN = "shutdown"
    """It was still under way when the time to drain was over."""
    ENGINE_DEAD = "engine_dead"
