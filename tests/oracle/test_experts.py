"""Mixtures of experts: the reference against loops, native code against the reference and its own ops."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from harness import naive
from harness.check import assert_rows_close, check_op, run_op
from harness.expert_cases import experts_case, random_experts
from harness.fused import fma
from harness.op_cases import OpCase
from harness.steps import rows_only_step
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ALL_IN_FLOAT64

from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Activation, Experts, Program
from octavo.kernels.quantization import dequantize
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.reference_exp import exp_float32
from octavo.kernels.select import available_isas
from octavo.kernels.weight import Quantization

ISAS = available_isas()
examples = settings(deadline=None, max_examples=20)


@st.composite
def cases(draw, *, quantizations=(Quantization.F32,), blocks_of=1) -> OpCase:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_experts = draw(st.integers(1, 9))
    experts = random_experts(
        rng,
        num_experts=num_experts,
        width=blocks_of * draw(st.integers(1, 5)),
        intermediate=blocks_of * draw(st.integers(1, 5)),
        top_k=draw(st.integers(1, num_experts)),
        quantization=draw(st.sampled_from(quantizations)),
        normalized=draw(st.booleans()),
        activation=draw(st.sampled_from(Activation)),
    )
    return experts_case(rng, experts, num_tokens=draw(st.integers(1, 12)))


def native(*args, isa=ISAS[0], num_threads=2):
    return NativeInterpreter(*args, max_num_tokens=64, max_logit_rows=1, isa=isa, num_threads=num_threads)


def experts_of(case: OpCase) -> Experts:
    return case.program.ops[-1].experts


@examples
@given(cases())
def test_the_reference_is_the_formula(case):
    got = run_op(partial(ReferenceInterpreter, dtype=np.float64), case).rows
    (_, x), (_, router), (_, residual) = case.inputs
    want = [naive_row(*rows, experts_of(case)) for rows in zip(x, router, residual, strict=True)]
    assert_rows_close(got, np.array(want), ALL_IN_FLOAT64)


def naive_row(x, router, residual, experts):
    """One row, in loops over Python floats."""
    order = sorted(range(len(router)), key=lambda expert: (-router[expert], expert))[: experts.top_k]
    exponentials = [np.exp(np.float64(logit)) for logit in router]
    total = sum(exponentials[e] for e in order) if experts.normalized else sum(exponentials)
    activate = naive.silu if experts.activation is Activation.SILU else naive.gelu_tanh
    out = residual.astype(np.float64)
    for e in order:
        gate, up, down = (
            dequantize(part[e]).astype(np.float64).tolist()
            for part in (experts.gate, experts.up, experts.down)
        )
        rows = zip(naive.linear(x, gate), naive.linear(x, up), strict=True)
        hidden = [activate(g) * u for g, u in rows]
        out += exponentials[e] / total * np.array(naive.linear(hidden, down))
    return out


@pytest.mark.parametrize("isa", ISAS)
@examples
@given(case=cases(quantizations=(Quantization.F32, Quantization.F16, Quantization.BF16)))
def test_native_is_near_the_reference(isa, case):
    check_op(partial(native, isa=isa), case)


@examples
@given(cases(quantizations=(Quantization.F32, Quantization.Q4_0, Quantization.Q8_0), blocks_of=32))
def test_a_row_has_the_same_bits_in_any_company_and_setting(case):
    together = run_op(partial(native, isa="generic", num_threads=1), case).rows
    for isa in ISAS:
        assert run_op(partial(native, isa=isa, num_threads=3), case).rows.tobytes() == together.tobytes()
    for row in range(len(together)):
        inputs = [(buffer, rows[row : row + 1]) for buffer, rows in case.inputs]
        alone = replace(case, step=rows_only_step(1), inputs=inputs)
        assert run_op(native, alone).rows.tobytes() == together[row].tobytes()


@pytest.mark.parametrize("quantization", [Quantization.F32, Quantization.Q4_1, Quantization.Q8_0])
@pytest.mark.parametrize("normalized", [True, False])
def test_an_expert_is_a_gated_mlp_of_ordinary_ops(quantization, normalized):
    """Bit for bit, with the sum in the order of the row's preferences as ADR 0001 has it."""
    rng = np.random.default_rng(0)
    experts = random_experts(
        rng,
        num_experts=6,
        width=64,
        intermediate=96,
        top_k=3,
        quantization=quantization,
        normalized=normalized,
    )
    case = experts_case(rng, experts, num_tokens=4)
    got = run_op(native, case).rows
    (_, x), (_, router), (_, residual) = case.inputs
    for row in range(4):
        order = np.argsort(-router[row], kind="stable")[:3]
        exponentials = exp_float32(router[row] - router[row].max())
        total = sequential_sum(exponentials[order]) if normalized else lane_sum(exponentials)
        acc = np.zeros(64, np.float32)
        for e in order:
            acc = fma(exponentials[e] / total, run_mlp(experts, e, x[row : row + 1])[0], acc)
        assert (residual[row] + acc).tobytes() == got[row].tobytes()


def run_mlp(experts: Experts, expert: int, x: np.ndarray) -> np.ndarray:
    program = Program()
    rows = program.input(x.shape[1])
    gate_up = program.linear(rows, experts.gate[expert], experts.up[expert])
    out = program.linear(program.gated_activation(gate_up), experts.down[expert])
    case = OpCase(op="linear", program=program, step=rows_only_step(1), inputs=[(rows, x)], output=out)
    return run_op(native, case).rows


def sequential_sum(values):
    total = np.float32(0)
    for value in values:
        total += value
    return total


def lane_sum(values):
    lanes = np.zeros(16, np.float32)
    lanes[: len(values)] = values
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half : 2 * half]
    return lanes[0]


def test_of_equal_experts_the_first_ones_are_chosen():
    rng = np.random.default_rng(0)
    experts = random_experts(rng, num_experts=5, width=16, intermediate=16, top_k=2)
    case = experts_case(rng, experts, num_tokens=1)
    case.inputs[1][1][:] = [[0, 1, 0, 1, 1]]
    want = run_op(partial(ReferenceInterpreter, dtype=np.float64), case).rows
    assert_rows_close(run_op(native, case).rows, want, 1e-5)
    case.inputs[1][1][:] = [[-9, 1, -9, 1, -9]]
    assert_rows_close(run_op(native, case).rows, want, 1e-4)


@pytest.mark.parametrize("normalized", [True, False])
def test_a_row_of_nans_leaves_the_others_alone(normalized):
    rng = np.random.default_rng(0)
    experts = random_experts(rng, num_experts=5, width=16, intermediate=16, top_k=2, normalized=normalized)
    case = experts_case(rng, experts, num_tokens=3)
    want = run_op(native, case).rows
    for _, rows in case.inputs[:2]:
        rows[1] = np.nan
    got = run_op(native, case).rows
    assert np.isnan(got[1]).all()
    assert got[[0, 2]].tobytes() == want[[0, 2]].tobytes()


@pytest.mark.parametrize(
    ("num_experts", "top_k", "num_logits", "expected"),
    [
        (3, 0, 3, "a row cannot go through 0 of 3 experts"),
        (3, 4, 3, "a row cannot go through 4 of 3 experts"),
        (3, 2, 4, "4 router logits need as many experts, got 3"),
    ],
)
def test_experts_that_do_not_fit_are_refused(num_experts, top_k, num_logits, expected):
    rng = np.random.default_rng(0)
    experts = random_experts(rng, num_experts=num_experts, width=8, intermediate=8, top_k=top_k)
    program = Program()
    x, router, residual = program.input(8), program.input(num_logits), program.input(8)
    with pytest.raises(ValueError, match=expected):
        program.mixture_of_experts(x, router, experts, add_to=residual)
