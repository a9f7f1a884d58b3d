"""Rope and the write into the cache, against rotations of complex numbers and a walk over the slots."""

import numpy as np
from harness import naive
from harness.check import assert_rows_close, run_op
from harness.op_cases import HeadShape, rope_case
from harness.steps import random_parts
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import KV_TOLERANCES, TOLERANCES

from octavo.kernels.program import RopeSpec, RopeStyle
from octavo.kernels.reference import ReferenceInterpreter

head_shapes = st.builds(
    lambda num_kv_heads, group_size, half_dim: HeadShape(
        num_heads=num_kv_heads * group_size, num_kv_heads=num_kv_heads, head_dim=2 * half_dim
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(2, 6),
)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    heads=head_shapes,
    style=st.sampled_from(RopeStyle),
    num_pairs=st.integers(1, 6),
    block_size=st.sampled_from([1, 4, 8, 16]),
    kv_dtype=st.sampled_from(["float32", "float16"]),
    normed=st.booleans(),
)
def test_norms_and_rotates_queries_and_keys_and_writes_them_to_their_slots(
    seed, heads, style, num_pairs, block_size, kv_dtype, normed
):
    rng = np.random.default_rng(seed)
    num_pairs = min(num_pairs, heads.head_dim // 2)  # fewer than all: partial rotary
    rope = RopeSpec(style, 2 * num_pairs, tuple(rng.uniform(0, 1, num_pairs)), magnitude=1.0)
    parts = random_parts(rng, num_requests=3, max_seq_len=20)
    sizes = {"block_size": block_size, "kv_dtype": kv_dtype}
    case = rope_case(rng, parts=parts, heads=heads, rope=rope, normed=normed, **sizes)
    result = run_op(lambda *args: ReferenceInterpreter(*args, dtype=np.float64), case)

    queries, blocks = _naive_rope(case, parts, heads, rope)
    assert_rows_close(result.rows, queries, TOLERANCES["rope"])
    assert_rows_close(result.kv_blocks[1], blocks, KV_TOLERANCES[kv_dtype])
    np.testing.assert_array_equal(result.kv_blocks[0], case.kv_blocks[0], "the other layer was written")


def _naive_rope(case, parts, heads, rope):
    """Rotated queries, and layer 1 of the cache with the step's K and V in it."""
    blocks = case.kv_blocks[1].astype(np.float64)
    block_size, interleaved = case.kv_spec.block_size, rope.style is RopeStyle.INTERLEAVED
    rows = iter(case.inputs[0][1].astype(np.float64).tolist())
    queries = []
    for part, table in zip(parts, case.step.block_tables, strict=True):
        for position in range(part.num_computed_tokens, part.seq_len):
            row, head_dim = next(rows), heads.head_dim
            split = [row[i : i + head_dim] for i in range(0, len(row), head_dim)]
            split = _naive_head_norms(split, heads, case.program.ops[-1].norms)
            angles = [position * frequency for frequency in rope.frequencies]
            first_value = heads.num_heads + heads.num_kv_heads
            rotated = [naive.rotate(head, angles, interleaved=interleaved) for head in split[:first_value]]
            queries.append([value for head in rotated[: heads.num_heads] for value in head])
            block = blocks[table[position // block_size]]
            block[0, position % block_size] = rotated[heads.num_heads :]
            block[1, position % block_size] = split[first_value:]
    return np.array(queries), blocks


def _naive_head_norms(split, heads, norms):
    """The heads of a row, those of queries and keys normed."""
    if norms is None:
        return split
    query, key = (weight.raw.view(np.float32).tolist() for weight in (norms.query, norms.key))
    weights = [query] * heads.num_heads + [key] * heads.num_kv_heads
    normed = [naive.rms_norm(head, weight, norms.eps) for head, weight in zip(split, weights, strict=False)]
    return normed + split[len(normed) :]


def test_magnitude_scales_what_is_rotated():
    rng_of = np.random.default_rng
    heads = HeadShape(num_heads=1, num_kv_heads=1, head_dim=4)
    parts = random_parts(rng_of(0), num_requests=1, max_seq_len=9)
    plain = RopeSpec(RopeStyle.HALF_SPLIT, 4, (1.0, 0.1))
    scaled = RopeSpec(RopeStyle.HALF_SPLIT, 4, (1.0, 0.1), magnitude=1.5)
    rows, scaled_rows = (
        run_op(ReferenceInterpreter, rope_case(rng_of(1), parts=parts, heads=heads, rope=rope)).rows
        for rope in (plain, scaled)
    )
    assert_rows_close(scaled_rows, 1.5 * rows, TOLERANCES["rope"])
