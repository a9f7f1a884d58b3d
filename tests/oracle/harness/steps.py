"""Steps as a scheduler could order them: prefills, chunks and decodes side by side, blocks in any order."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from octavo.kernels.interpreter import StepInput

UNREADABLE_BLOCK = 1_000_000
"""Fills the entries of a block table behind a request's blocks; looking one up is an error."""


class Part(NamedTuple):
    """What one request does in a step."""

    num_computed_tokens: int
    num_new_tokens: int

    @property
    def seq_len(self) -> int:
        return self.num_computed_tokens + self.num_new_tokens


def random_parts(rng: np.random.Generator, *, num_requests: int, max_seq_len: int) -> list[Part]:
    """Whole prompts, chunks of prompts and single decode tokens, about a third each."""
    return [_random_part(rng, max_seq_len) for _ in range(num_requests)]


def _random_part(rng: np.random.Generator, max_seq_len: int) -> Part:
    seq_len = int(rng.integers(1, max_seq_len + 1))
    match rng.integers(3):
        case 0:
            return Part(0, seq_len)
        case 1:
            return Part(seq_len - 1, 1)
        case _:
            num_computed = int(rng.integers(0, seq_len))
            return Part(num_computed, seq_len - num_computed)


def blocks_needed(parts: Sequence[Part], block_size: int) -> int:
    """Blocks that hold all sequences of a step."""
    return sum(-(-part.seq_len // block_size) for part in parts)


def shuffled_block_tables(
    rng: np.random.Generator, seq_lens: Sequence[int], *, block_size: int, num_blocks: int
) -> np.ndarray:
    """A block table for each sequence, from blocks in random order; no block is used twice."""
    counts = [-(-seq_len // block_size) for seq_len in seq_lens]
    assert sum(counts) <= num_blocks, f"{sum(counts)} blocks are needed, there are {num_blocks}"
    tables = np.full((len(counts), max(counts, default=0) + 2), UNREADABLE_BLOCK, np.int32)
    free = iter(rng.permutation(num_blocks))
    for table, count in zip(tables, counts, strict=True):
        table[:count] = [next(free) for _ in range(count)]
    return tables


def make_step(
    parts: Sequence[Part],
    block_tables: np.ndarray,
    *,
    token_ids: Sequence[int] | np.ndarray | None = None,
    logit_rows: Sequence[int] | np.ndarray | None = None,
) -> StepInput:
    """The step of these parts, in this order; without ``logit_rows``, each request's last row is wanted."""
    lengths = [part.num_new_tokens for part in parts]
    ends = np.cumsum(lengths, dtype=np.int32)
    positions = [np.arange(part.num_computed_tokens, part.seq_len) for part in parts]
    num_tokens = sum(lengths)
    return StepInput(
        token_ids=_int32(np.zeros(num_tokens) if token_ids is None else token_ids),
        positions=_int32(np.concatenate([np.empty(0), *positions])),
        query_start_loc=_int32([0, *ends]),
        seq_lens=_int32([part.seq_len for part in parts]),
        block_tables=_int32(block_tables),
        logit_rows=_int32(ends - 1 if logit_rows is None else logit_rows),
    )


def rows_only_step(num_tokens: int, *, logit_rows: Sequence[int] = ()) -> StepInput:
    """A step for ops that look at nothing but their rows: one request that starts at position 0."""
    tables = np.zeros((1, num_tokens), np.int32)
    return make_step([Part(0, num_tokens)], tables, logit_rows=logit_rows)


def _int32(values: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int32)
