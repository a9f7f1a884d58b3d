"""`BlockHashToBlockMap`: from a block hash to every block that holds that content.

Two requests may compute the same content at the same time; both blocks are kept, because a running
request's table is never rewritten, and either can serve a hit. Nearly always there is one block per
hash, so a plain dictionary holds one block per hash and a second one, nearly always empty, the rest.
"""

from collections.abc import Iterable, Iterator

from octavo.errors import InvariantError
from octavo.kv.block import KVCacheBlock
from octavo.kv.hashing import BlockHash


class BlockHashToBlockMap:
    """Findable blocks by content. A block is in the map exactly while its ``block_hash`` is set."""

    __slots__ = ("_duplicates", "_first")

    def __init__(self) -> None:
        self._first: dict[BlockHash, KVCacheBlock] = {}
        self._duplicates: dict[BlockHash, dict[int, KVCacheBlock]] = {}  # by block id, oldest first

    def get(self, block_hash: BlockHash) -> KVCacheBlock | None:
        """Any one block with this content; the longest known one, so that hits concentrate."""
        return self._first.get(block_hash)

    def longest_prefix(self, block_hashes: Iterable[BlockHash]) -> list[KVCacheBlock]:
        """A block for each leading hash, up to the first that is not in the map."""
        get = self._first.get
        blocks = []
        for block_hash in block_hashes:
            block = get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def insert(self, block_hash: BlockHash, block: KVCacheBlock) -> None:
        """Make ``block`` findable as ``block_hash``; `InvariantError` if it already is, as anything."""
        if block.block_hash is not None:
            raise InvariantError(
                f"block {block.block_id} is hashed already and cannot become {block_hash.hex()[:8]}"
            )
        block.block_hash = block_hash
        first = self._first.setdefault(block_hash, block)
        if first is not block:
            self._duplicates.setdefault(block_hash, {})[block.block_id] = block

    def remove(self, block: KVCacheBlock) -> None:
        """Make ``block``, and only it, unfindable; `InvariantError` if it is not in the map."""
        block_hash = block.block_hash
        first = None if block_hash is None else self._first.get(block_hash)
        if block_hash is None or first is None:
            raise InvariantError(f"block {block.block_id} is not in the hash map")
        if first is not block:
            self._remove_duplicate(block_hash, block.block_id)
        elif block_hash in self._duplicates:
            self._first[block_hash] = self._remove_duplicate(block_hash)
        else:
            del self._first[block_hash]
        block.block_hash = None

    def remove_findable(self, blocks: Iterable[KVCacheBlock]) -> int:
        """Make ``blocks`` unfindable, whether or not they were findable; returns how many were."""
        first, duplicates = self._first, self._duplicates
        num_removed = 0
        for block in blocks:
            block_hash = block.block_hash
            if block_hash is None:
                continue
            num_removed += 1
            if block_hash not in duplicates and first.get(block_hash) is block:
                del first[block_hash]  # `remove`, inlined where the hash has one block: evicting is all this
                block.block_hash = None
            else:
                self.remove(block)
        return num_removed

    def _remove_duplicate(self, block_hash: BlockHash, block_id: int | None = None) -> KVCacheBlock:
        """Take out the duplicate with this id, or the oldest one."""
        duplicates = self._duplicates.get(block_hash, {})
        if block_id is None:
            block_id = next(iter(duplicates))
        block = duplicates.pop(block_id, None)
        if block is None:
            raise InvariantError(
                f"block {block_id} claims hash {block_hash.hex()[:8]}, but the map disagrees"
            )
        if not duplicates:
            del self._duplicates[block_hash]
        return block

    def clear(self) -> None:
        """Forget everything; no block is findable afterwards."""
        for block in self.blocks():
            block.block_hash = None
        self._first.clear()
        self._duplicates.clear()

    @property
    def num_blocks(self) -> int:
        """Findable blocks, duplicates included."""
        return len(self._first) + sum(map(len, self._duplicates.values()))

    def blocks(self) -> Iterator[KVCacheBlock]:
        """Every findable block, duplicates included."""
        yield from self._first.values()
        for duplicates in self._duplicates.values():
            yield from duplicates.values()

    def blocks_of(self, block_hash: BlockHash) -> list[KVCacheBlock]:
        """All blocks with this content, the longest known one first."""
        if block_hash not in self._first:
            return []
        return [self._first[block_hash], *self._duplicates.get(block_hash, {}).values()]

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._first

    def __len__(self) -> int:
        """Number of distinct contents, duplicates counted once."""
        return len(self._first)
