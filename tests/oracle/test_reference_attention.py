"""Paged attention against loops over one head and one token at a time, and the cache's own memory."""

from dataclasses import replace

import numpy as np
import pytest
from harness import naive
from harness.check import assert_rows_close, run_op
from harness.op_cases import HeadShape, attention_case
from harness.steps import Part, random_parts
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ALL_IN_FLOAT64

from octavo.kernels.kv_quantization import dequantize_queries, quantize_queries
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.reference_kv import ReferenceKVStore
from octavo.kv.spec import KVCacheSpec

head_shapes = st.builds(
    lambda num_kv_heads, group_size, head_dim: HeadShape(
        num_heads=num_kv_heads * group_size, num_kv_heads=num_kv_heads, head_dim=head_dim
    ),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 8),
)


def float64_reference(*args):
    return ReferenceInterpreter(*args, dtype=np.float64)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    heads=head_shapes,
    block_size=st.sampled_from([1, 4, 8, 16]),
    kv_dtype=st.sampled_from(["float32", "float16"]),
    window=st.none() | st.integers(1, 24),
    soft_cap=st.none() | st.floats(0.5, 50),
)
def test_paged_attention(seed, heads, block_size, kv_dtype, window, soft_cap):
    rng = np.random.default_rng(seed)
    parts = random_parts(rng, num_requests=3, max_seq_len=20)
    case = attention_case(
        rng,
        parts=parts,
        heads=heads,
        block_size=block_size,
        kv_dtype=kv_dtype,
        window=window,
        soft_cap=soft_cap,
    )
    want = _naive_attention(case, parts, heads)
    assert_rows_close(run_op(float64_reference, case).rows, want, ALL_IN_FLOAT64)


def _naive_attention(case, parts, heads):
    op, group_size = case.program.ops[-1], heads.num_heads // heads.num_kv_heads
    blocks, block_size = case.kv_blocks[1].astype(np.float64), case.kv_spec.block_size
    rows = iter(case.inputs[0][1].astype(np.float64).reshape(-1, heads.num_heads, heads.head_dim).tolist())
    out = []
    for part, table in zip(parts, case.step.block_tables, strict=True):
        slots = [blocks[table[p // block_size], :, p % block_size] for p in range(part.seq_len)]
        for position in range(part.num_computed_tokens, part.seq_len):
            first = 0 if op.window is None else max(0, position - op.window + 1)
            row = []
            for head, query in enumerate(next(rows)):
                keys, values = (
                    [slot[kind, head // group_size].tolist() for slot in slots[first : position + 1]]
                    for kind in (0, 1)
                )
                row += naive.attention(query, keys, values, scale=op.scale, cap=op.soft_cap)
            out.append(row)
    return np.array(out)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    head_dim=st.sampled_from([16, 48]),
    window=st.none() | st.integers(1, 24),
    soft_cap=st.none() | st.floats(0.5, 50),
)
def test_paged_attention_over_an_int8_cache(seed, head_dim, window, soft_cap):
    """As over the numbers that the integers stand for, of queries that went through integers too."""
    rng = np.random.default_rng(seed)
    heads = HeadShape(num_heads=4, num_kv_heads=2, head_dim=head_dim)
    parts = random_parts(rng, num_requests=3, max_seq_len=20)
    case = attention_case(rng, parts=parts, heads=heads, kv_dtype="int8", window=window, soft_cap=soft_cap)
    got = run_op(float64_reference, case)
    [(buffer, rows)] = case.inputs
    scale = case.program.ops[-1].scale
    queries = dequantize_queries(quantize_queries(rows.reshape(-1, 4, head_dim), scale), np.float64) / scale
    meant = replace(case, kv_blocks=got.kv_blocks, inputs=[(buffer, queries.reshape(rows.shape))])
    assert_rows_close(got.rows, _naive_attention(meant, parts, heads), ALL_IN_FLOAT64)


@pytest.mark.parametrize("kv_dtype", ["float32", "int8"])
def test_a_stale_nan_beside_every_sequence_is_never_read(kv_dtype):
    heads = HeadShape(num_heads=2, num_kv_heads=1, head_dim=16)
    parts = [Part(3, 2), Part(30, 1)]
    case = attention_case(np.random.default_rng(0), parts=parts, heads=heads, kv_dtype=kv_dtype, window=5)
    assert np.isnan(case.kv_blocks).any()
    assert np.isfinite(run_op(ReferenceInterpreter, case).rows).all()


def test_a_nan_that_a_later_row_wrote_does_not_reach_earlier_rows():
    heads = HeadShape(num_heads=1, num_kv_heads=1, head_dim=4)
    case = attention_case(np.random.default_rng(0), parts=[Part(0, 6)], heads=heads, block_size=8)
    case.kv_blocks[1, case.step.block_tables[0, 0], :, 4] = np.nan
    rows = run_op(ReferenceInterpreter, case).rows
    assert np.isfinite(rows[:4]).all()
    assert np.isnan(rows[4:]).all()


def test_scores_far_beyond_exp_are_no_problem():
    heads = HeadShape(num_heads=1, num_kv_heads=1, head_dim=4)
    case = attention_case(np.random.default_rng(0), parts=[Part(9, 1)], heads=heads)
    case.inputs[0][1][:] *= 1e4
    assert np.isfinite(run_op(ReferenceInterpreter, case).rows).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_store_copies_blocks_in_every_layer_in_order(dtype):
    spec = KVCacheSpec(block_size=2, num_layers=3, num_kv_heads=1, head_dim=16, dtype=dtype)
    store = ReferenceKVStore(spec, 4)
    assert store.num_bytes == spec.bytes_per_block * 5  # the null block too
    for layer in range(3):
        for block_id in range(5):
            store.write_block(layer, block_id, np.full((2, 2, 1, 16), 10 * layer + block_id))
    store.copy_blocks([(0, 1), (1, 2)])  # the second copies what the first wrote
    contents = [[round(store.block(layer, block)[0, 0, 0, 0]) for block in range(5)] for layer in range(3)]
    assert contents == [[0, 0, 0, 3, 4], [10, 10, 10, 13, 14], [20, 20, 20, 23, 24]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_a_block_read_from_the_store_is_a_copy(dtype):
    spec = KVCacheSpec(block_size=2, num_layers=1, num_kv_heads=1, head_dim=16, dtype=dtype)
    store = ReferenceKVStore(spec, 1)
    assert store.block(0, 0).dtype == ("float32" if dtype == "int8" else dtype)
    store.block(0, 0)[:] = 7
    assert not store.block(0, 0).any()
