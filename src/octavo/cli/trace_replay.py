"""Replays a request trace over the real `KVCacheManager`, without a model: what caches of a size would find.

A trace has one JSON object per line, with ``timestamp`` [ms], ``input_length`` [tokens], ``hash_ids`` (one
per block of the prompt; a block that is not full is left out here, since nothing could find it) and
``block_size`` [tokens]. Requests come one after another, in order of their time, and each is computed before
the next one comes: with many at once, hits are somewhat fewer, as the blocks of running requests are held.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.table import Table

from octavo.errors import ConfigError
from octavo.kv.hashing import BlockHash
from octavo.kv.manager import KVCacheManager

_DIGEST = struct.Struct("<qqqq")
_SIZES = (1, 3, 10, 30)
"""Sizes of the caches that are compared, in percent of the distinct blocks; the last one keeps everything."""


class TraceRow(NamedTuple):
    """One request of a trace."""

    timestamp: float
    num_tokens: int
    block_hashes: list[BlockHash]
    """Of the full blocks."""
    block_size: int
    num_cached_tokens: int | None
    """What the cache found when the trace was written, if the trace says so."""


class TraceRequest:
    """Just what the cache manager asks of a request."""

    skip_prefix_lookup = False

    def __init__(self, request_id: str, row: TraceRow) -> None:
        self.request_id = request_id
        self.num_tokens = row.num_tokens
        self.num_computed_tokens = 0
        self.block_hashes = row.block_hashes


class Found(NamedTuple):
    """What a cache of one size found."""

    num_blocks: int
    num_hit_tokens: int
    num_skipped: int
    """Requests larger than the whole cache."""


def read_trace(path: Path, *, default_block_size: int) -> list[TraceRow]:
    """The rows of a trace in order of time.

    Raises:
        ConfigError: a line is no row of a trace, or there is none, or block sizes differ.
    """
    rows = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                rows.append(_row(line, f"{path}, line {number}", default_block_size))
    if len({row.block_size for row in rows}) != 1:
        raise ConfigError(f"{path} must have rows, all of one block_size; got {len(rows)} rows")
    return sorted(rows, key=lambda row: row.timestamp)


def _row(line: str, place: str, default_block_size: int) -> TraceRow:
    try:
        fields = json.loads(line)
        num_tokens = int(fields["input_length"])
        block_size = int(fields.get("block_size", default_block_size))
        hash_ids = [int(hash_id) for hash_id in fields["hash_ids"][: num_tokens // max(block_size, 1)]]
        cached = fields.get("cached_tokens")
        row = TraceRow(
            float(fields["timestamp"]),
            num_tokens,
            [_DIGEST.pack(hash_id, 0, 0, 0) for hash_id in hash_ids],
            block_size,
            None if cached is None else int(cached),
        )
    except (ValueError, TypeError, KeyError, AttributeError, struct.error):
        raise ConfigError(
            f"{place} is no row of a trace: it must be an object with timestamp, input_length and hash_ids"
        ) from None
    if not hash_ids and 0 < block_size <= num_tokens:
        raise ConfigError(
            f"{place} has no hash_ids: a server with prefix caching off hashes no blocks, so nothing is "
            f"there to replay; write the trace with --enable-prefix-caching"
        )
    if num_tokens < 1 or block_size < 1 or len(hash_ids) < num_tokens // block_size:
        raise ConfigError(
            f"{place}: {num_tokens} tokens in blocks of {block_size} cannot have {len(hash_ids)} hash_ids; "
            f"give the trace's --block-size"
        )
    return row


def replay_trace(rows: Sequence[TraceRow], num_blocks: int) -> Found:
    """Let the requests come and go over a cache of ``num_blocks`` blocks."""
    manager = KVCacheManager(num_blocks=num_blocks, block_size=rows[0].block_size)
    num_hit_tokens = num_skipped = 0
    for number, row in enumerate(rows):
        request = TraceRequest(str(number), row)
        hit = manager.lookup(request)
        if manager.allocate(request, row.num_tokens - hit.num_tokens, hit=hit) is None:
            num_skipped += 1
            continue
        num_hit_tokens += hit.num_tokens
        request.num_computed_tokens = row.num_tokens
        manager.commit(request, len(row.block_hashes) * row.block_size)
        manager.confirm_step()
        manager.free(request)
    return Found(num_blocks, num_hit_tokens, num_skipped)


def trace_table(rows: Sequence[TraceRow], num_blocks: int | None, *, plain: bool = False) -> Table:
    """What caches of several sizes, or of the given one, would have found."""
    num_tokens = sum(row.num_tokens for row in rows)
    block_size = rows[0].block_size
    title = f"{len(rows):,} requests, {num_tokens:,} prompt tokens, blocks of {block_size}"
    table = Table(title=title, box=None if plain else box.SIMPLE_HEAD)
    for heading in ("blocks", "tokens in cache", "found", "share of prompt tokens", "too large"):
        table.add_column(heading, justify="right")
    for size in _sizes(rows) if num_blocks is None else (num_blocks,):
        found = replay_trace(rows, size)
        share = f"{100 * found.num_hit_tokens / num_tokens:.1f} %"
        capacity = f"{size * block_size:,}"
        table.add_row(f"{size:,}", capacity, f"{found.num_hit_tokens:,}", share, f"{found.num_skipped:,}")
    measured = [row.num_cached_tokens for row in rows if row.num_cached_tokens is not None]
    if measured:
        share = f"{100 * sum(measured) / num_tokens:.1f} %"
        table.add_row("as served", "", f"{sum(measured):,}", share, "")
    return table


def _sizes(rows: Sequence[TraceRow]) -> list[int]:
    """From a hundredth of the trace's blocks to a cache that never evicts one."""
    num_distinct = len({block_hash for row in rows for block_hash in row.block_hashes})
    largest = max(-(-row.num_tokens // row.block_size) for row in rows)
    sizes = {max(num_distinct * percent // 100, largest) for percent in _SIZES}
    return sorted(sizes | {num_distinct + largest})
