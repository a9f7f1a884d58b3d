"""`QueuePlace`: where a request stands among others that wait."""

from typing import NamedTuple


class QueuePlace(NamedTuple):
    """What decides whose turn it is."""

    priority: int = 0
    """Lower runs first under the priority policy."""
    tenant: str = ""
    """Whose it is; tenants that wait are served in turn."""


ANY_PLACE = QueuePlace()
"""Of a request that is like all others."""
