"""`Replay`: requests that come and go over the real `KVCacheManager`, with a picture taken after each event.

No model is involved: what a block would hold is known from the tokens alone. This is what `octavo explain`
draws, and what a test compares with the walk-through of docs/kv-cache.md state by state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.errors import InvalidRequestError
from octavo.kv.hashing import BlockHash, BlockHasher, model_root
from octavo.kv.manager import KVCacheManager
from octavo.kv.prefix_hit import PrefixHit

_ROOT = model_root("octavo explain", kv_dtype="none", kv_layout="none", rope_parameters={})


class Token(NamedTuple):
    """A token id and how to draw it."""

    token_id: int
    text: str


class BlockPicture(NamedTuple):
    """One physical block at one moment."""

    block_id: int
    ref_cnt: int
    holders: tuple[str, ...]
    """Requests whose table names the block."""
    tokens: tuple[str, ...]
    """What its slots hold; empty if nothing was ever written."""
    is_findable: bool


class Picture(NamedTuple):
    """The whole cache after one event."""

    event: str
    """What happened, in one sentence."""
    block_tables: dict[str, list[int]]
    blocks: list[BlockPicture]
    free_queue: list[int]
    """Block ids, the next to be used first."""
    hash_map: dict[str, list[int]]
    """Text of a whole prefix to the blocks that hold its last part."""
    hit_blocks: list[int]
    """Found in the cache by this event."""
    new_blocks: list[int]
    """Taken from the free queue by this event."""
    evicted: dict[int, str]
    """Block id to the prefix that stopped being findable with this event."""
    num_unfilled_slots: int
    """Slots held by requests without a token in them: all the waste there is."""


@dataclass(slots=True)
class _ReplayRequest:
    """Just what the manager asks of a request."""

    request_id: str
    tokens: Sequence[Token]
    num_computed_tokens: int = 0
    block_hashes: list[BlockHash] = field(default_factory=list)
    skip_prefix_lookup: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)


class Replay:
    """Plays arrivals and departures.

    Args:
        num_blocks: usable blocks of the pool.
        block_size: tokens per block.
    """

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        self._manager = KVCacheManager(num_blocks=num_blocks, block_size=block_size)
        self._hasher = BlockHasher(block_size, _ROOT)
        self._running: dict[str, _ReplayRequest] = {}
        self._contents: dict[int, tuple[str, ...]] = {}
        self._prefix_texts: dict[BlockHash, str] = {}

    @property
    def running(self) -> list[str]:
        """Requests that hold blocks, the longest running first."""
        return list(self._running)

    def arrive(self, name: str, tokens: Sequence[Token]) -> Picture | None:
        """A request comes and its whole prompt is computed; ``None``, and no change, if there is no room now.

        Raises:
            InvalidRequestError: it has no token, or could not fit into the empty pool either.
        """
        manager = self._manager
        num_needed = -(-len(tokens) // manager.block_size)
        if not tokens or num_needed > manager.num_blocks:
            raise InvalidRequestError(
                f"request {name} has {len(tokens)} tokens and needs {num_needed} blocks of "
                f"{manager.block_size}, got {manager.num_blocks}; give a token at least, or more --num-blocks"
            )
        request = _ReplayRequest(name, tokens)
        self._hasher.extend(request.block_hashes, [token.token_id for token in tokens], _ROOT)
        findable_before = self._findable()
        hit = manager.lookup(request)
        new_blocks = manager.allocate(request, len(tokens) - hit.num_tokens, hit=hit)
        if new_blocks is None:
            return None
        self._compute(request)
        evicted = {block_id: text for block_id, text in findable_before.items() if block_id in new_blocks}
        return self._picture(
            _arrival(request, hit, new_blocks), hit=hit, new_blocks=new_blocks, evicted=evicted
        )

    def finish(self, name: str) -> Picture:
        """A request ends and gives up its blocks; nothing is erased."""
        request = self._running.pop(name)
        self._manager.free(request)
        return self._picture(f"{name} finishes and releases its blocks, the last one first.")

    def _compute(self, request: _ReplayRequest) -> None:
        """One step over the whole prompt: K/V of every token is written, full blocks become findable."""
        manager = self._manager
        request.num_computed_tokens = request.num_tokens
        manager.commit(request, request.num_tokens)
        manager.take_block_copies()
        manager.confirm_step()
        self._running[request.request_id] = request
        texts = [token.text for token in request.tokens]
        for index, block_id in enumerate(manager.block_ids(request.request_id)):
            start = index * manager.block_size
            self._contents[block_id] = tuple(texts[start : start + manager.block_size])
        for index, block_hash in enumerate(request.block_hashes):
            self._prefix_texts[block_hash] = _spaced(texts, manager.block_size, index + 1)

    def _findable(self) -> dict[int, str]:
        return {
            block.block_id: self._prefix_texts[block.block_hash]
            for block in self._manager.block_pool.blocks
            if block.block_hash is not None
        }

    def _picture(
        self,
        event: str,
        *,
        hit: PrefixHit | None = None,
        new_blocks: Sequence[int] = (),
        evicted: dict[int, str] | None = None,
    ) -> Picture:
        manager = self._manager
        tables = {name: manager.block_ids(name) for name in self._running}
        hash_map: dict[str, list[int]] = {}
        for block_id, text in self._findable().items():
            hash_map.setdefault(text, []).append(block_id)
        blocks = [
            BlockPicture(
                block_id=block.block_id,
                ref_cnt=block.ref_cnt,
                holders=tuple(name for name, ids in tables.items() if block.block_id in ids),
                tokens=self._contents.get(block.block_id, ()),
                is_findable=block.block_hash is not None,
            )
            for block in manager.block_pool.blocks
        ]
        return Picture(
            event=event,
            block_tables=tables,
            blocks=blocks,
            free_queue=[block.block_id for block in manager.block_pool.free_block_queue],
            hash_map=hash_map,
            hit_blocks=[block.block_id for block in hit.blocks] if hit else [],
            new_blocks=list(new_blocks),
            evicted=evicted or {},
            num_unfilled_slots=sum(
                -request.num_tokens % manager.block_size for request in self._running.values()
            ),
        )


def _arrival(request: _ReplayRequest, hit: PrefixHit, new_blocks: Sequence[int]) -> str:
    found = (
        f"{hit.num_tokens} of its {request.num_tokens} tokens are cached"
        if hit.num_tokens
        else f"none of its {request.num_tokens} tokens is cached"
    )
    noun = "block" if len(new_blocks) == 1 else "blocks"
    return f"{request.request_id} arrives: {found}; it takes {len(new_blocks)} new {noun}."


def _spaced(texts: Sequence[str], block_size: int, num_blocks: int) -> str:
    """The first ``num_blocks`` blocks of a prompt as text, a space between blocks."""
    starts = range(0, num_blocks * block_size, block_size)
    return " ".join("".join(texts[start : start + block_size]) for start in starts)


def letters(text: str) -> list[Token]:
    """Every character but spaces as a token, so that block borders can be seen."""
    return [Token(ord(character), character) for character in text if not character.isspace()]


def walk_through() -> list[Picture]:
    """The walk-through of docs/kv-cache.md: 4 blocks of 4 tokens, three requests with a common start."""
    replay = Replay(num_blocks=4, block_size=4)
    pictures = [
        replay.arrive("A", letters("ABCD EFGH IJKL")),
        replay.arrive("B", letters("ABCD EFGH XYZ")),
        replay.finish("A"),
        replay.finish("B"),
        replay.arrive("C", letters("ABCD EFGH PPPP QQQQ")),
    ]
    return [picture for picture in pictures if picture is not None]


def in_turn(replay: Replay, prompts: Sequence[Sequence[Token]]) -> list[Picture]:
    """Prompts arrive in turn, named A, B, …; the oldest finishes when room is needed, all at the end."""
    pictures = []
    for index, tokens in enumerate(prompts):
        name = chr(ord("A") + index) if index < 26 else f"R{index}"
        while (picture := replay.arrive(name, tokens)) is None:
            pictures.append(replay.finish(replay.running[0]))
        pictures.append(picture)
    pictures += [replay.finish(name) for name in replay.running]
    return pictures
