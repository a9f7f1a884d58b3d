"""`PrefixesInFlight`: prefixes that a running request is going to compute but has not yet.

A request whose next block is in here gains by waiting: one step later that block is a hit. Requests
leave the register when they end or are preempted, so nobody ever waits for a block that is not coming.
"""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kv.hashing import BlockHash


class _Remaining(NamedTuple):
    """What one request still has to compute: its hashes up to block ``end``, the next one last."""

    end: int
    hashes: list[BlockHash]


class PrefixesInFlight:
    """Which block hashes are being computed, and by how many requests."""

    __slots__ = ("_num_computing", "_remaining")

    def __init__(self) -> None:
        self._num_computing: dict[BlockHash, int] = {}
        self._remaining: dict[str, _Remaining] = {}

    def start(self, request_id: str, block_hashes: Sequence[BlockHash], first_block: int) -> None:
        """Register that the request will compute ``block_hashes[first_block:]`` in later steps."""
        hashes = list(block_hashes[first_block:])
        if not hashes:
            return
        hashes.reverse()
        self._remaining[request_id] = _Remaining(len(block_hashes), hashes)
        for block_hash in hashes:
            self._num_computing[block_hash] = self._num_computing.get(block_hash, 0) + 1

    def advance(self, request_id: str, num_blocks: int) -> None:
        """The request's first ``num_blocks`` blocks are findable now."""
        remaining = self._remaining.get(request_id)
        if remaining is None:
            return
        while remaining.hashes and len(remaining.hashes) > remaining.end - num_blocks:
            self._discard(remaining.hashes.pop())
        if not remaining.hashes:
            del self._remaining[request_id]

    def stop(self, request_id: str) -> None:
        """The request computes nothing any more: it ended or was preempted."""
        remaining = self._remaining.pop(request_id, None)
        if remaining is not None:
            for block_hash in remaining.hashes:
                self._discard(block_hash)

    def _discard(self, block_hash: BlockHash) -> None:
        count = self._num_computing.pop(block_hash)
        if count > 1:
            self._num_computing[block_hash] = count - 1

    def request_ids(self) -> set[str]:
        """Requests that have something left to compute."""
        return set(self._remaining)

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._num_computing

    def __len__(self) -> int:
        return len(self._num_computing)
