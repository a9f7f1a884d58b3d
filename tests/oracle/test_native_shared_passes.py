"""Requests that begin with the same blocks read them together, and no bit of any row changes."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from harness.check import run_op
from harness.op_cases import HeadShape, OpCase, random_rows, view_dtype
from harness.steps import Part, make_step
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program
from octavo.kernels.select import available_isas
from octavo.kv.spec import KVCacheSpec

ISAS = available_isas()
DEFAULT_HEADS = HeadShape(num_heads=6, num_kv_heads=2, head_dim=16)


@dataclass(frozen=True)
class Family:
    """Requests and their block tables: a tree of prefixes that branches at random."""

    parts: list[Part]
    tables: list[np.ndarray]
    num_blocks: int


def random_family(rng: np.random.Generator, *, block_size: int, max_len: int = 1500) -> Family:
    """Each request continues a random piece of an earlier one's table, or starts afresh."""
    parts: list[Part] = []
    tables: list[np.ndarray] = []
    num_used = 0
    for _ in range(rng.integers(2, 9)):
        num_new = int(rng.choice([0, 1, 1, 1, 1, 2, 7, 8, 9, 40]))
        computed = int(rng.integers(0, max_len))
        needed = -(-(computed + max(num_new, 1)) // block_size)
        table = np.empty(0, np.int64)
        if tables and rng.random() < 0.85:
            first_written = computed // block_size  # blocks that a request writes are its own
            ancestor = tables[rng.integers(len(tables))]
            table = ancestor[
                : min(first_written, rng.choice([len(ancestor), rng.integers(len(ancestor) + 1)]))
            ]
        own = np.arange(num_used, num_used + needed - len(table))
        num_used += len(own)
        parts.append(Part(computed, num_new))
        tables.append(np.concatenate([table, own]))
    order = rng.permutation(num_used)
    return Family(parts, [order[table] for table in tables], num_used)


def attend(
    family: Family,
    *,
    share_passes: bool,
    heads: HeadShape = DEFAULT_HEADS,
    block_size: int = 16,
    kv_dtype: str = "float16",
    window: int | None = None,
    soft_cap: float | None = None,
    isa: str = ISAS[0],
    num_threads: int = 1,
) -> np.ndarray:
    """Output rows of the step; the same queries and cache for the same family."""
    rng = np.random.default_rng(1)
    width = heads.num_heads * heads.head_dim
    program = Program()
    queries = program.input(width)
    output = program.paged_attention(
        queries,
        layer=0,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        scale=heads.head_dim**-0.5,
        window=window,
        soft_cap=soft_cap,
    )
    spec = KVCacheSpec(
        block_size=block_size,
        num_layers=1,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        dtype=kv_dtype,
    )
    shape = (1, family.num_blocks, 2, block_size, heads.num_kv_heads, heads.head_dim)
    widest = max(map(len, family.tables))
    step = make_step(
        family.parts, [np.pad(table, (0, widest - len(table))) for table in family.tables], logit_rows=()
    )
    case = OpCase(
        op="attention",
        program=program,
        step=step,
        inputs=[(queries, 3 * random_rows(rng, len(step.positions), width))],
        output=output,
        kv_spec=spec,
        num_blocks=family.num_blocks,
        kv_blocks=rng.normal(size=shape).astype(view_dtype(kv_dtype)),
    )

    def make(*args) -> NativeInterpreter:
        interpreter = NativeInterpreter(
            *args, max_num_tokens=512, max_logit_rows=0, isa=isa, num_threads=num_threads
        )
        interpreter.share_passes(share_passes)
        return interpreter

    return run_op(make, case).rows


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    num_kv_heads=st.integers(1, 2),
    group_size=st.sampled_from([1, 2, 3, 4, 8]),
    cache=st.one_of(
        st.tuples(st.sampled_from([8, 16, 32, 80, 256]), st.sampled_from(["float16", "float32"])),
        st.tuples(st.sampled_from([16, 32, 64, 80, 96, 128, 256]), st.just("int8")),
    ),
    block_size=st.sampled_from([8, 16, 24, 32, 512]),
    window=st.none() | st.sampled_from([5, 300, 2000]),
    soft_cap=st.none() | st.just(5.0),
    num_threads=st.integers(1, 3),
)
def test_sharing_changes_no_bit(
    isa, seed, num_threads, num_kv_heads, group_size, cache, block_size, **setting
):
    head_dim, kv_dtype = cache
    heads = HeadShape(num_heads=num_kv_heads * group_size, num_kv_heads=num_kv_heads, head_dim=head_dim)
    family = random_family(np.random.default_rng(seed), block_size=block_size, max_len=1100)
    run = partial(attend, family, heads=heads, kv_dtype=kv_dtype, block_size=block_size, **setting)
    want = run(share_passes=False)
    assert_same_bits(run(share_passes=True, isa=isa, num_threads=num_threads), want)


def chain(num_requests: int, depth: int, *, num_new: int = 1) -> Family:
    """Request i has i + 1 partitions in common with every later one: groups within groups."""
    blocks_per_partition = 256 // 16
    trunk = np.arange(depth * blocks_per_partition)
    parts, tables, used = [], [], len(trunk)
    for i in range(num_requests):
        common = trunk[: min(i + 1, depth) * blocks_per_partition]
        own = np.arange(used, used + 1 + blocks_per_partition)
        used += len(own)
        parts.append(Part(len(common) * 16 + 20 * i % 200, num_new))
        tables.append(np.concatenate([common, own]))
    return Family(parts, tables, used)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_new", [1, 8])
@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_nested_groups(num_threads, num_new, kv_dtype):
    family = chain(9, 6, num_new=num_new)
    run = partial(attend, family, kv_dtype=kv_dtype)
    assert_same_bits(run(share_passes=True, num_threads=num_threads), run(share_passes=False))


def crowd(num_requests: int, *, num_partitions: int, num_further: int) -> Family:
    """All requests have the first partitions in common, every other one also some further ones."""
    blocks_per_partition = 256 // 16
    trunk = np.arange((num_partitions + num_further) * blocks_per_partition)
    parts, tables, used = [], [], len(trunk)
    for i in range(num_requests):
        common = trunk[: (num_partitions + num_further * (i % 2)) * blocks_per_partition]
        own = np.arange(used, used + 1 + blocks_per_partition)
        used += len(own)
        parts.append(Part(len(common) * 16 + 20 * i % 200, 1))
        tables.append(np.concatenate([common, own]))
    return Family(parts, tables, used)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_requests", [7, 8, 16, 33, 70])  # fewer rows than are merged at once, and more
@pytest.mark.parametrize(("num_partitions", "num_further"), [(1, 0), (4, 0), (3, 2)])
@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_partitions_of_many_rows_are_merged_at_once(isa, num_requests, num_partitions, num_further, kv_dtype):
    family = crowd(num_requests, num_partitions=num_partitions, num_further=num_further)
    run = partial(attend, family, kv_dtype=kv_dtype, isa=isa)
    want = run(share_passes=False)
    for num_threads in (1, 2, 5):
        assert_same_bits(run(share_passes=True, num_threads=num_threads), want)


def num_passes(parts: list[Part], tables: list[list[int]], *, block_size: int = 256) -> int:
    """Of a step without attention: what the block tables alone lead to."""
    spec = KVCacheSpec(block_size=block_size, num_layers=1, num_kv_heads=1, head_dim=8, dtype="float16")
    interpreter = NativeInterpreter(Program(), spec, 64, max_num_tokens=512, max_logit_rows=0, num_threads=1)
    widest = max(map(len, tables))
    padded = np.array([table + [0] * (widest - len(table)) for table in tables])
    interpreter.run(make_step(parts, padded, logit_rows=()))
    found = interpreter.num_shared_passes
    interpreter.close()
    return found


@pytest.mark.parametrize(
    ("positions", "tables", "found"),
    [
        ([600, 600], [[1, 2, 3], [1, 2, 4]], 1),
        ([600, 600], [[1, 2, 3], [2, 1, 4]], 0),  # the same blocks in another order
        ([600, 600], [[5, 2, 3], [6, 2, 4]], 0),  # the same, but not from the beginning
        ([600], [[1, 2, 3]], 0),
        ([255, 255], [[1], [1]], 0),  # a request's last partition is its own
        ([256, 600], [[1, 3], [1, 2, 4]], 1),
        ([600, 600, 600], [[1, 2, 3], [1, 2, 4], [1, 5, 6]], 2),  # all three, and two of them further
        ([600, 600, 600], [[1, 2, 3], [1, 5, 6], [1, 2, 4]], 2),  # in any order
        ([600, 600, 600, 600], [[1, 2, 3], [7, 8, 9], [1, 2, 4], [7, 8, 5]], 2),
    ],
)
def test_groups_are_found_in_the_block_tables(positions, tables, found):
    assert num_passes([Part(position, 1) for position in positions], tables) == found


def test_a_long_chunk_takes_no_part():
    """Its rows share their loads among themselves."""
    tables = [[1, 2, 3], [1, 2, 4]]
    assert num_passes([Part(600, 8), Part(600, 1)], tables) == 1
    assert num_passes([Part(600, 9), Part(600, 1)], tables) == 0
    assert num_passes([Part(600, 0), Part(600, 1)], tables) == 0


def test_blocks_that_do_not_divide_a_partition_must_cover_it():
    """Ten blocks of 24 tokens are 240, eleven are 264."""
    part = Part(520, 1)
    for common, found in ((10, 0), (11, 1)):
        tables = [[*range(common), *range(20 + 15 * i, 20 + 15 * i + 22 - common)] for i in range(2)]
        assert num_passes([part, part], tables, block_size=24) == found


@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_many_rows_of_a_pass_are_cut_into_items(kv_dtype):
    """40 requests of 6 heads over one prefix: more rows than an item takes."""
    trunk = np.arange(32)
    tables = [np.append(trunk, 32 + i) for i in range(40)]
    family = Family([Part(512 + i % 16, 1) for i in range(40)], tables, 72)
    heads = HeadShape(num_heads=6, num_kv_heads=1, head_dim=16)
    run = partial(attend, family, heads=heads, kv_dtype=kv_dtype)
    want = run(share_passes=False)
    for num_threads in (1, 3):
        assert_same_bits(run(share_passes=True, num_threads=num_threads), want)
