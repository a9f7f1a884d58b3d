"""The harness itself: the float32 reference passes every case, and a wrong interpreter does not."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from harness.check import assert_rows_close, check_op
from harness.op_cases import (
    HeadShape,
    attention_case,
    embed_case,
    gated_activation_case,
    linear_case,
    logits_case,
    rms_norm_case,
    rope_case,
)
from harness.steps import Part, blocks_needed, random_parts, shuffled_block_tables

from octavo.kernels.program import RopeSpec, RopeStyle
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.weight import Quantization

HEADS = HeadShape(num_heads=4, num_kv_heads=2, head_dim=16)
ROPE = RopeSpec(RopeStyle.HALF_SPLIT, 16, tuple(10_000 ** (-i / 8) for i in range(8)))
MIXED = (Part(0, 40), Part(70, 1), Part(5, 20), Part(0, 1))


@pytest.mark.parametrize("activations", ["float", "int8"])
@pytest.mark.parametrize("quantization", Quantization)
def test_float32_reference_passes_with_every_quantization(quantization, activations):
    rng = np.random.default_rng(1)
    make = partial(ReferenceInterpreter, activations=activations)
    parts = (quantization, Quantization.F32)
    check_op(make, linear_case(rng, quantizations=parts, bias=True), activations=activations)
    check_op(make, linear_case(rng, quantizations=parts, accumulate=True), activations=activations)
    check_op(make, logits_case(rng, quantization=quantization, soft_cap=2.0), activations=activations)
    check_op(make, embed_case(rng, quantization=quantization, scale=3.3), activations=activations)


@pytest.mark.parametrize("kv_dtype", ["float32", "float16", "int8"])
def test_float32_reference_passes_the_ops_without_weights(kv_dtype):
    rng = np.random.default_rng(2)
    check_op(ReferenceInterpreter, rms_norm_case(rng))
    check_op(ReferenceInterpreter, gated_activation_case(rng))
    check_op(ReferenceInterpreter, rope_case(rng, parts=MIXED, heads=HEADS, rope=ROPE, kv_dtype=kv_dtype))
    windowed = attention_case(rng, parts=MIXED, heads=HEADS, kv_dtype=kv_dtype, window=9, soft_cap=4.0)
    check_op(ReferenceInterpreter, windowed)


class OffByOneInterpreter(ReferenceInterpreter):
    """Reads every position one too early."""

    def run(self, step):
        positions, token_ids = np.maximum(step.positions - 1, 0), np.maximum(step.token_ids - 1, 0)
        return super().run(replace(step, positions=positions, token_ids=token_ids))


@pytest.mark.parametrize(
    "make_case",
    [
        embed_case,
        partial(rope_case, parts=MIXED, heads=HEADS, rope=ROPE),
        partial(attention_case, parts=MIXED, heads=HEADS),
    ],
)
def test_a_wrong_interpreter_is_caught(make_case):
    with pytest.raises(AssertionError):
        check_op(OffByOneInterpreter, make_case(np.random.default_rng(3)))


def test_activations_quantised_differently_are_caught():
    case = linear_case(np.random.default_rng(4), quantizations=(Quantization.Q4_1,))
    with pytest.raises(AssertionError, match="off by"):
        check_op(ReferenceInterpreter, case, activations="int8")


def test_rows_with_nans_in_different_places_are_not_close():
    with pytest.raises(AssertionError, match="NaNs"):
        assert_rows_close(np.array([[1.0, np.nan]]), np.array([[1.0, 2.0]]), 1.0)


def test_block_tables_are_shuffled_and_disjoint():
    rng = np.random.default_rng(5)
    parts = random_parts(rng, num_requests=9, max_seq_len=100)
    num_blocks = blocks_needed(parts, 8)
    seq_lens = [part.seq_len for part in parts]
    tables = shuffled_block_tables(rng, seq_lens, block_size=8, num_blocks=num_blocks)
    used = [int(block) for table, n in zip(tables, seq_lens, strict=True) for block in table[: -(-n // 8)]]
    assert sorted(used) == list(range(num_blocks))
    assert used != sorted(used)
