"""`CacheReceipt`: what a request got from the prefix cache, and why it got no more."""

from enum import StrEnum
from typing import NamedTuple


class MissReason(StrEnum):
    """Why the first token that was not found had to be computed."""

    LAST_TOKEN = "last_token"
    """Everything before it was found; whoever fills no whole block more must compute the rest."""
    EVICTED = "evicted"
    """It was in the cache, and its block was needed for something else."""
    NEVER_CACHED = "never_cached"
    """Not as far back as is remembered."""
    SALT = "salt"
    """Nothing was cached under the request's salt. What others have cached it is not told."""
    NOT_LOOKED_UP = "not_looked_up"
    """The cache is off, or prompt log-probabilities or an embedding need every token computed."""


class CacheReceipt(NamedTuple):
    """Of a request's first admission, in blocks of its prompt."""

    num_reused_blocks: int
    num_copied_blocks: int
    num_computed_blocks: int
    first_miss_position: int
    """Of the first token that was computed."""
    first_miss_reason: MissReason
