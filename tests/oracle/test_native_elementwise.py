"""Native norm, rope, K/V write, gated activation and soft cap: near the reference, same bits everywhere."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from harness.check import OpResult, check_op, run_op
from harness.fused import fma
from harness.op_cases import (
    HeadShape,
    OpCase,
    gated_activation_case,
    logits_case,
    rms_norm_case,
    rope_case,
)
from harness.steps import Part, random_parts, rows_only_step
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Activation, RopeSpec, RopeStyle
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.reference_exp import exp_float32
from octavo.kernels.select import available_isas

ISAS = available_isas()

seeds = st.integers(0, 2**32)
widths = st.sampled_from([1, 7, 15, 16, 17, 64, 100, 576, 1536])
activations = st.sampled_from(Activation)


def rope_shapes(head_dims):
    return st.tuples(st.sampled_from(head_dims), st.sampled_from([1.0, 0.5, 0.0]), st.sampled_from(RopeStyle))


rope_shapes_and_kv_dtypes = st.one_of(
    st.tuples(rope_shapes([8, 16, 24, 64, 80, 128, 256]), st.sampled_from(["float16", "float32"])),
    st.tuples(rope_shapes([16, 32, 48, 64, 80, 96, 128, 256]), st.just("int8")),
)
examples = settings(deadline=None, max_examples=25)


def native(*args, isa=ISAS[0], num_threads=2):
    return NativeInterpreter(*args, max_num_tokens=512, max_logit_rows=16, isa=isa, num_threads=num_threads)


def random_rope_case(seed, heads_and_style, *, block_size=16, kv_dtype="float16", normed=False) -> OpCase:
    head_dim, share, style = heads_and_style
    rng = np.random.default_rng(seed)
    num_pairs = int(head_dim * share) // 2
    rope = RopeSpec(style, 2 * num_pairs, tuple(rng.uniform(0, 1, num_pairs)), magnitude=1.25)
    return rope_case(
        rng,
        parts=random_parts(rng, num_requests=3, max_seq_len=70),
        heads=HeadShape(num_heads=4, num_kv_heads=2, head_dim=head_dim),
        rope=rope,
        block_size=block_size,
        kv_dtype=kv_dtype,
        normed=normed,
    )


def assert_same_bits_in_every_setting(case: OpCase) -> None:
    want = run_op(partial(native, isa="generic", num_threads=1), case)
    for isa in ISAS:
        for num_threads in (1, 3):
            assert_same_bits(run_op(partial(native, isa=isa, num_threads=num_threads), case), want)


def assert_same_bits(got: OpResult, want: OpResult) -> None:
    np.testing.assert_array_equal(got.rows.view(np.int32), want.rows.view(np.int32))
    assert got.kv_blocks.tobytes() == want.kv_blocks.tobytes()


@pytest.mark.parametrize("isa", ISAS)
@examples
@given(
    seed=seeds,
    width=widths,
    num_tokens=st.integers(1, 9),
    eps=st.sampled_from([1e-6, 1e-5, 0.1]),
    accumulate=st.booleans(),
)
def test_rms_norm(isa, seed, width, num_tokens, eps, accumulate):
    rng = np.random.default_rng(seed)
    case = rms_norm_case(rng, width=width, num_tokens=num_tokens, eps=eps, accumulate=accumulate)
    check_op(partial(native, isa=isa), case)


@pytest.mark.parametrize("isa", ISAS)
@examples
@given(seed=seeds, width=widths, num_tokens=st.integers(1, 9), activation=activations)
def test_gated_activation(isa, seed, width, num_tokens, activation):
    rng = np.random.default_rng(seed)
    case = gated_activation_case(rng, width=width, num_tokens=num_tokens, activation=activation)
    case.inputs[0][1][:, [0, width]] = 6  # sets the row's scale: for negative gates 1 + tanh cancels
    check_op(partial(native, isa=isa), case)


@pytest.mark.parametrize("isa", ISAS)
@examples
@given(
    seed=seeds,
    shape_and_kv_dtype=rope_shapes_and_kv_dtypes,
    block_size=st.sampled_from([8, 16, 24, 32]),
    normed=st.booleans(),
)
def test_rope_and_write_kv(isa, seed, shape_and_kv_dtype, block_size, normed):
    """Slots that no row writes keep their numbers: the whole cache is compared."""
    shape, kv_dtype = shape_and_kv_dtype
    case = random_rope_case(seed, shape, block_size=block_size, kv_dtype=kv_dtype, normed=normed)
    check_op(partial(native, isa=isa), case)


@pytest.mark.parametrize("style", RopeStyle)
def test_rope_is_as_exact_at_the_end_of_a_long_context(style):
    """Angles of ten thousands of turns: a float32 angle would be off by a hundredth of a turn."""
    rng = np.random.default_rng(0)
    rope = RopeSpec(style, 16, tuple(10_000 ** (-i / 8) for i in range(8)), magnitude=1.2)
    case = rope_case(
        rng,
        parts=[Part(131_070, 2), Part(32_766, 3)],
        heads=HeadShape(num_heads=2, num_kv_heads=1, head_dim=16),
        rope=rope,
        block_size=1024,
    )
    check_op(native, case)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab_size", [48, 50])
def test_soft_cap_of_the_logits(isa, vocab_size):
    case = logits_case(np.random.default_rng(0), vocab_size=vocab_size, soft_cap=3.0)
    check_op(partial(native, isa=isa), case)


@examples
@given(seed=seeds, width=widths, activation=activations)
def test_rows_have_the_same_bits_in_every_setting(seed, width, activation):
    rng = np.random.default_rng(seed)
    assert_same_bits_in_every_setting(rms_norm_case(rng, width=width, num_tokens=7))
    assert_same_bits_in_every_setting(rms_norm_case(rng, width=width, num_tokens=7, accumulate=True))
    assert_same_bits_in_every_setting(
        gated_activation_case(rng, width=width, num_tokens=7, activation=activation)
    )


@examples
@given(
    seed=seeds,
    shape_and_kv_dtype=rope_shapes_and_kv_dtypes,
    block_size=st.sampled_from([8, 16]),
    normed=st.booleans(),
)
def test_rope_has_the_same_bits_in_every_setting(seed, shape_and_kv_dtype, block_size, normed):
    shape, kv_dtype = shape_and_kv_dtype
    case = random_rope_case(seed, shape, block_size=block_size, kv_dtype=kv_dtype, normed=normed)
    assert_same_bits_in_every_setting(case)


@pytest.mark.parametrize("make_case", [rms_norm_case, gated_activation_case])
def test_a_row_alone_is_the_row_among_others(make_case):
    case = make_case(np.random.default_rng(0), width=1000, num_tokens=33)
    together = run_op(native, case).rows
    [(buffer, rows)] = case.inputs
    for row in (0, 1, 16, 32):
        alone = replace(case, step=rows_only_step(1), inputs=[(buffer, rows[row : row + 1])])
        assert run_op(native, alone).rows.tobytes() == together[row].tobytes()


@pytest.mark.parametrize("make_case", [rms_norm_case, gated_activation_case])
def test_a_row_of_nans_leaves_the_others_alone(make_case):
    case = make_case(np.random.default_rng(0), width=40, num_tokens=3)
    want = run_op(native, case).rows
    case.inputs[0][1][1] = np.nan
    got = run_op(native, case).rows
    assert np.isnan(got[1]).all()
    assert got[[0, 2]].tobytes() == want[[0, 2]].tobytes()


def test_gates_beyond_the_range_of_exp():
    case = gated_activation_case(np.random.default_rng(0), width=4, num_tokens=1)
    case.inputs[0][1][0] = [-1e30, 1e30, -200, 200, 1, 1, 1, 1]
    [row] = run_op(native, case).rows
    np.testing.assert_array_equal(row[[1, 3]], np.float32([1e30, 200]))
    assert row[0] < 0
    assert -1e-30 < row[2] < 0


def test_a_value_too_large_for_a_float16_cache_becomes_infinite():
    heads = HeadShape(num_heads=1, num_kv_heads=1, head_dim=16)
    rope = RopeSpec(RopeStyle.HALF_SPLIT, 16, (0.0,) * 8)
    case = rope_case(np.random.default_rng(0), parts=[Part(0, 1)], heads=heads, rope=rope, kv_dtype="float16")
    case.inputs[0][1][0, 32:34] = [65519, 65520]
    cache = run_op(native, case).kv_blocks[1, case.step.block_tables[0, 0], 1, 0, 0]
    np.testing.assert_array_equal(cache[:2], [65504, np.inf])


@pytest.mark.parametrize("isa", ISAS)
@examples
@given(
    seed=seeds,
    head_dim=st.sampled_from([16, 32, 48, 64, 80, 96, 128, 256]),
    block_size=st.sampled_from([8, 16, 24, 32, 48, 64]),
)
def test_an_int8_cache_holds_the_bits_of_the_frozen_arithmetic(isa, seed, head_dim, block_size):
    """Without rope, which would round: numbers of all sizes, a head of zeros, one of NaN, one of infinity."""
    case = random_rope_case(
        seed, (head_dim, 0.0, RopeStyle.HALF_SPLIT), block_size=block_size, kv_dtype="int8"
    )
    rng = np.random.default_rng(seed)
    [(_, rows)] = case.inputs
    rows *= (10.0 ** rng.integers(-42, 30, len(rows)))[:, None].astype(np.float32)
    for odd in (0.0, np.nan, np.inf):
        rows[rng.integers(len(rows)), head_dim * rng.integers(4, 8)] = odd
    got, want = run_op(partial(native, isa=isa), case), run_op(ReferenceInterpreter, case)
    np.testing.assert_array_equal(got.kv_blocks, want.kv_blocks)


@pytest.mark.parametrize("isa", ISAS)
def test_rms_norm_is_the_frozen_arithmetic(isa):
    """Operation by operation as docs/adr/0001-arithmetic.md has it; the width leaves some lanes shorter."""
    case = rms_norm_case(np.random.default_rng(0), width=90, num_tokens=4, eps=1e-5)
    weight = case.program.ops[1].weight.raw.view(np.float32)
    for x, got in zip(
        case.inputs[0][1].astype(np.float32), run_op(partial(native, isa=isa), case).rows, strict=True
    ):
        lanes = np.zeros(16, np.float32)
        for i, value in enumerate(x):
            lanes[i % 16] = fma(value, value, lanes[i % 16])
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        inverse = np.float32(1) / np.sqrt(lanes[0] / np.float32(90) + np.float32(1e-5))
        assert got.tobytes() == (x * inverse * weight).tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activation", Activation)
def test_gated_activation_is_the_frozen_arithmetic(isa, activation):
    case = gated_activation_case(np.random.default_rng(0), width=90, num_tokens=4, activation=activation)
    x, up = np.split(case.inputs[0][1], 2, axis=1)
    if activation is Activation.SILU:
        want = x / (np.float32(1) + exp_float32(-x))
    else:
        inner = np.float32(0.7978845608) * fma(np.float32(0.044715) * x * x, x, x)
        tanh = np.float32(1) - np.float32(2) / (exp_float32(np.float32(2) * inner) + np.float32(1))
        want = np.float32(0.5) * x * (np.float32(1) + tanh)
    assert run_op(partial(native, isa=isa), case).rows.tobytes() == (want * up).tobytes()
