"""`PrefixHit`: what a lookup found."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kv.block import KVCacheBlock


class PrefixHit(NamedTuple):
    """Cached blocks that hold the first ``num_tokens`` tokens of a request.

    Nobody keeps them: a hit is good until the next allocation, which may evict what it found.
    """

    blocks: Sequence[KVCacheBlock]
    num_tokens: int


NO_HIT = PrefixHit((), 0)
