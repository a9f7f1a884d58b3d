"""Whole sequences of requests, of which native attention computes any part in any setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from harness.check import run_op
from harness.op_cases import HeadShape, OpCase
from harness.steps import Part, blocks_needed, make_step, shuffled_block_tables
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program
from octavo.kernels.select import available_isas
from octavo.kv.spec import KVCacheSpec

ISAS = available_isas()
DEFAULT_HEADS = HeadShape(num_heads=6, num_kv_heads=2, head_dim=32)


def native(*args, isa=ISAS[0], num_threads=2):
    return NativeInterpreter(*args, max_num_tokens=2048, max_logit_rows=0, isa=isa, num_threads=num_threads)


@dataclass(frozen=True)
class Conversation:
    """A request's whole sequence: what it asks, and what its cache holds."""

    queries: np.ndarray  # [num_tokens, num_heads * head_dim]
    kv: np.ndarray  # [2, num_tokens, num_kv_heads, head_dim]


@dataclass(frozen=True)
class Setting:
    """What must not change a bit (and the op's own parameters, which do)."""

    block_size: int = 16
    isa: str = ISAS[0]
    num_threads: int = 2
    shuffle_seed: int = 0
    kv_dtype: str = "float16"
    window: int | None = None
    soft_cap: float | None = None


def conversation(seed: int, num_tokens: int, heads: HeadShape = DEFAULT_HEADS) -> Conversation:
    rng = np.random.default_rng(seed)
    queries = 3 * rng.normal(0, 1, (num_tokens, heads.num_heads * heads.head_dim))
    kv = rng.normal(0, 1, (2, num_tokens, heads.num_kv_heads, heads.head_dim))
    return Conversation(queries.astype(np.float32), kv.astype(np.float16))


def attend(
    conversations: Sequence[Conversation],
    parts: Sequence[Part],
    setting: Setting,
    heads: HeadShape = DEFAULT_HEADS,
) -> list[np.ndarray]:
    """Output rows of each part; every slot that no request owns is NaN."""
    program = Program()
    queries = program.input(heads.num_heads * heads.head_dim)
    output = program.paged_attention(
        queries,
        layer=1,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        scale=heads.head_dim**-0.5,
        window=setting.window,
        soft_cap=setting.soft_cap,
    )
    num_blocks = blocks_needed(parts, setting.block_size) + 2
    tables = shuffled_block_tables(
        np.random.default_rng(setting.shuffle_seed),
        [part.seq_len for part in parts],
        block_size=setting.block_size,
        num_blocks=num_blocks,
    )
    case = OpCase(
        op="attention",
        program=program,
        step=make_step(parts, tables, logit_rows=()),
        inputs=[(queries, _rows_of(conversations, parts))],
        output=output,
        kv_spec=KVCacheSpec(
            block_size=setting.block_size,
            num_layers=2,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            dtype=setting.kv_dtype,
        ),
        num_blocks=num_blocks,
        kv_blocks=_blocks_of(conversations, parts, tables, setting.block_size, num_blocks),
    )
    make = partial(native, isa=setting.isa, num_threads=setting.num_threads)
    rows = run_op(make, case).rows
    return np.split(rows, case.step.query_start_loc[1:-1])


def _rows_of(conversations, parts):
    return np.concatenate(
        [
            talk.queries[part.num_computed_tokens : part.seq_len]
            for talk, part in zip(conversations, parts, strict=True)
        ]
    )


def _blocks_of(conversations, parts, tables, block_size, num_blocks):
    num_kv_heads, head_dim = conversations[0].kv.shape[2:]
    shape = (2, num_blocks, 2, block_size, num_kv_heads, head_dim)
    blocks = np.full(shape, np.nan, conversations[0].kv.dtype)
    for talk, part, table in zip(conversations, parts, tables, strict=True):
        positions = np.arange(part.seq_len)
        block_ids, offsets = table[positions // block_size], positions % block_size
        blocks[1, block_ids, :, offsets] = talk.kv[:, : part.seq_len].swapaxes(0, 1)
    return blocks


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))
