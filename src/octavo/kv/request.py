"""`CacheRequest`: what the KV cache must know of a request, and nothing more."""

from collections.abc import Sequence
from typing import Protocol

from octavo.kv.hashing import BlockHash


class CacheRequest(Protocol):
    """A request as `KVCacheManager` sees it. The manager only ever reads it."""

    @property
    def request_id(self) -> str:
        """Unique among the requests that hold blocks."""

    @property
    def num_tokens(self) -> int:
        """Known tokens: the prompt and the output so far."""

    @property
    def num_computed_tokens(self) -> int:
        """Leading tokens whose K/V is in the cache, or is being written by a step already scheduled."""

    @property
    def block_hashes(self) -> Sequence[BlockHash]:
        """One hash per full block of known tokens; entries are only ever appended."""

    @property
    def skip_prefix_lookup(self) -> bool:
        """Whether to compute every token afresh, as prompt logprobs need; what that fills is still stored."""
