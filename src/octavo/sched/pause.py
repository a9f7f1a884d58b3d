"""`PauseMode`: what `Scheduler.pause_mode` holds back."""

from enum import StrEnum


class PauseMode(StrEnum):
    """Who waits while the scheduler is paused. Nobody loses anything that was computed."""

    NEW = "new"
    """Running requests go on; nobody is admitted, a request preempted meanwhile included."""
    ALL = "all"
    """Nothing is computed."""
