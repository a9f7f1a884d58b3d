"""Each op that looks at nothing but its rows, against loops over Python floats."""

import numpy as np
import pytest
from harness import naive
from harness.check import assert_rows_close, run_op
from harness.op_cases import (
    embed_case,
    gated_activation_case,
    linear_case,
    logits_case,
    rms_norm_case,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ALL_IN_FLOAT64

from octavo.kernels.program import Activation, Program
from octavo.kernels.quantization import dequantize
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.weight import Quantization

seeds = st.integers(0, 2**32)
sizes = st.integers(1, 12)
examples = settings(deadline=None, max_examples=25)


def float64_reference(*args):
    return ReferenceInterpreter(*args, dtype=np.float64)


def run_in_float64(case):
    return run_op(float64_reference, case).rows


def numbers(weight):
    return dequantize(weight).tolist()


@examples
@given(seeds, sizes, st.sampled_from(Quantization), st.sampled_from([1.0, 0.5, 25.3]))
def test_embed_looks_up_and_scales(seed, num_tokens, quantization, scale):
    case = embed_case(
        np.random.default_rng(seed), quantization=quantization, num_tokens=num_tokens, scale=scale
    )
    table = numbers(case.program.ops[0].weight)
    want = [[value * scale for value in table[token]] for token in case.step.token_ids]
    np.testing.assert_array_equal(run_in_float64(case), want)


@examples
@given(seeds, sizes, sizes, st.sampled_from([1e-6, 1e-5, 0.1]), st.booleans())
def test_rms_norm(seed, num_tokens, width, eps, accumulate):
    rng = np.random.default_rng(seed)
    case = rms_norm_case(rng, width=width, num_tokens=num_tokens, eps=eps, accumulate=accumulate)
    weight = numbers(case.program.ops[-1].weight)
    want = np.array([naive.rms_norm(row.tolist(), weight, eps) for row in case.inputs[0][1]])
    if accumulate:
        want += case.inputs[1][1]
    assert_rows_close(run_in_float64(case), want, ALL_IN_FLOAT64)


@examples
@given(
    seeds,
    sizes,
    sizes,
    st.lists(st.sampled_from(Quantization), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_linear(seed, num_tokens, rows_per_part, quantizations, bias, accumulate):
    case = linear_case(
        np.random.default_rng(seed),
        quantizations=quantizations,
        rows_per_part=rows_per_part,
        num_tokens=num_tokens,
        bias=bias,
        accumulate=accumulate,
    )
    op = case.program.ops[-1]
    matrix = [row for part in op.parts for row in numbers(part)]
    offsets = numbers(op.bias) if bias else [0.0] * len(matrix)
    want = np.array([naive.linear(row.tolist(), matrix) for row in case.inputs[0][1]]) + offsets
    if accumulate:
        want = case.inputs[1][1] + want
    assert_rows_close(run_in_float64(case), want, ALL_IN_FLOAT64)


@examples
@given(seeds, sizes, sizes, st.sampled_from(Activation))
def test_gated_activation(seed, num_tokens, width, activation):
    case = gated_activation_case(
        np.random.default_rng(seed), width=width, num_tokens=num_tokens, activation=activation
    )
    function = naive.silu if activation is Activation.SILU else naive.gelu_tanh
    want = [
        [function(gate) * up for gate, up in zip(row[:width], row[width:], strict=True)]
        for row in case.inputs[0][1].tolist()
    ]
    assert_rows_close(run_in_float64(case), np.array(want), ALL_IN_FLOAT64)


@pytest.mark.parametrize("activation", Activation)
def test_gated_activation_saturates_without_overflow(activation):
    program = Program()
    gate_up = program.input(8)
    output = program.gated_activation(gate_up, activation=activation)
    case = gated_activation_case(np.random.default_rng(0), num_tokens=1, width=4)
    interpreter = ReferenceInterpreter(program, case.kv_spec, 1)
    interpreter.write(gate_up, np.array([[-1e4, -200, 200, 1e4, 1, 1, 1, 1]], np.float32))
    interpreter.run(case.step)
    np.testing.assert_array_equal(interpreter.read(output), [[0, 0, 200, 1e4]])


@examples
@given(
    seeds,
    st.lists(st.integers(0, 4), max_size=6),
    st.sampled_from(Quantization),
    st.sampled_from([None, 0.7, 30.0]),
)
def test_logits_of_the_rows_asked_for(seed, logit_rows, quantization, cap):
    case = logits_case(
        np.random.default_rng(seed), logit_rows=logit_rows, quantization=quantization, soft_cap=cap
    )
    matrix = numbers(case.program.head.weight)
    rows = case.inputs[0][1]
    want = [
        [naive.soft_cap(logit, cap) for logit in naive.linear(rows[row].tolist(), matrix)]
        for row in logit_rows
    ]
    assert_rows_close(run_in_float64(case), np.array(want).reshape(-1, len(matrix)), ALL_IN_FLOAT64)


def test_logits_of_other_rows_after_the_run():
    case = logits_case(np.random.default_rng(0), logit_rows=())
    interpreter = float64_reference(case.program, case.kv_spec, 1)
    interpreter.write(*case.inputs[0])
    assert interpreter.run(case.step).shape == (0, 48)
    all_rows = interpreter.logits(np.arange(5, dtype=np.int32))
    some_rows = interpreter.logits(np.array([3, 1], np.int32))
    assert_rows_close(some_rows, all_rows[[3, 1]], ALL_IN_FLOAT64)


def test_a_program_without_a_head_has_no_logits():
    case = rms_norm_case(np.random.default_rng(0))
    interpreter = float64_reference(case.program, case.kv_spec, 1)
    interpreter.write(*case.inputs[0])
    assert interpreter.run(case.step).size == 0


def test_a_nan_stays_in_its_row():
    case = linear_case(np.random.default_rng(0), quantizations=(Quantization.Q8_0,))
    buffer, rows = case.inputs[0]
    rows[2, 7] = np.nan
    for activations in ("float", "int8"):
        interpreter = ReferenceInterpreter(case.program, case.kv_spec, 1, activations=activations)
        interpreter.write(buffer, rows)
        interpreter.run(case.step)
        is_nan = np.isnan(interpreter.read(case.output))
        assert is_nan[2].all()
        assert not np.delete(is_nan, 2, axis=0).any()
