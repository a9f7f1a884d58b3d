"""Adapters: near the reference, the frozen arithmetic, and nobody else's bits."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from harness.adapters import random_adapter, random_pair, with_adapters
from harness.check import check_op, run_op
from harness.fused import fma
from harness.op_cases import OpCase, linear_case, random_rows
from harness.steps import rows_only_step
from harness.weights import random_weight, vector_weight
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import EngineError
from octavo.kernels.adapter import NO_ADAPTER, Adapter, LowRankPair
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.select import available_isas
from octavo.kernels.weight import Quantization

ISAS = available_isas()
RANKS = (1, 3, 8, 16, 17, 40, 256)

seeds = st.integers(0, 2**32)
examples = settings(deadline=None, max_examples=20)


def native(*args, isa=ISAS[0], num_threads=2):
    return NativeInterpreter(*args, max_num_tokens=128, max_logit_rows=16, isa=isa, num_threads=num_threads)


def random_case(seed: int, *, bias: bool, accumulate: bool) -> OpCase:
    """A linear over requests, some without an adapter, some with one that others have, too."""
    rng = np.random.default_rng(seed)
    formats = [Quantization.F32, Quantization.Q8_0, Quantization.Q4_K, Quantization.F16]
    lengths = rng.integers(1, 12, rng.integers(1, 7)).tolist()
    case = linear_case(
        rng,
        quantizations=rng.choice(formats, rng.integers(1, 4)).tolist(),
        rows_per_part=int(rng.choice([3, 15, 24, 48, 300])),
        columns=256,
        num_tokens=sum(lengths),
        bias=bias,
        accumulate=accumulate,
    )
    adapters = {slot: random_adapter(rng, case, ranks=RANKS) for slot in (0, 1, 5)}
    slots = rng.choice([NO_ADAPTER, *adapters], len(lengths)).tolist()
    return replace(with_adapters(case, adapters, lengths=lengths, slots=slots), op="low_rank")


def bits(rows: np.ndarray) -> np.ndarray:
    return rows.view(np.int32)


@pytest.mark.parametrize("isa", ISAS)
@examples
@given(seed=seeds, bias=st.booleans(), accumulate=st.booleans())
def test_a_linear_with_adapters(isa, seed, bias, accumulate):
    case = random_case(seed, bias=bias, accumulate=accumulate)
    check_op(partial(native, isa=isa), case, activations="int8")


@examples
@given(seed=seeds)
def test_adapters_have_the_same_bits_in_every_setting(seed):
    case = random_case(seed, bias=True, accumulate=True)
    want = run_op(partial(native, isa="generic", num_threads=1), case).rows
    for isa in ISAS:
        for num_threads in (1, 3):
            got = run_op(partial(native, isa=isa, num_threads=num_threads), case).rows
            np.testing.assert_array_equal(bits(got), bits(want))


@examples
@given(seed=seeds)
def test_a_request_among_others_is_the_request_alone(seed):
    case = random_case(seed, bias=False, accumulate=True)
    together = run_op(native, case).rows
    starts = case.step.query_start_loc
    for i, slot in enumerate(case.step.adapter_slots.tolist()):
        rows = slice(starts[i], starts[i + 1])
        inputs = [(buffer, values[rows]) for buffer, values in case.inputs]
        alone = replace(case, inputs=inputs, step=rows_only_step(starts[i + 1] - starts[i]))
        if slot != NO_ADAPTER:  # without one there is no list of slots at all: nothing may differ from that
            alone = with_adapters(alone, case.adapters, lengths=[starts[i + 1] - starts[i]], slots=[slot])
        np.testing.assert_array_equal(bits(run_op(native, alone).rows), bits(together[rows]))


def mlp_case(quantization: Quantization, num_tokens: int) -> OpCase:
    """Norm, gate and up, activation, down: fused and quantised on the way, where nobody has an adapter."""
    rng = np.random.default_rng(0)
    program = Program()
    x = program.input(64)
    gate, up, down = (random_weight(rng, shape, quantization) for shape in ((96, 64), (96, 64), (64, 96)))
    h = program.rms_norm(x, vector_weight(rng, 64), eps=1e-5)
    out = program.linear(program.gated_activation(program.linear(h, gate, up)), down)
    rows = random_rows(rng, num_tokens, 64)
    return OpCase(
        op="linear", program=program, step=rows_only_step(num_tokens), inputs=[(x, rows)], output=out
    )


@pytest.mark.parametrize("quantization", [Quantization.Q8_0, Quantization.Q4_0, Quantization.F32])
def test_rows_without_an_adapter_keep_their_bits_through_fused_ops(quantization):
    case = mlp_case(quantization, 9)
    want = run_op(native, case).rows
    rng = np.random.default_rng(1)
    adapters = {0: random_adapter(rng, case, ranks=[4], share=1.0)}
    got = run_op(native, with_adapters(case, adapters, lengths=[2, 3, 4], slots=[NO_ADAPTER, 0, NO_ADAPTER]))
    np.testing.assert_array_equal(bits(got.rows[[0, 1, 5, 6, 7, 8]]), bits(want[[0, 1, 5, 6, 7, 8]]))
    assert (got.rows[2:5] != want[2:5]).any(axis=1).all()
    adapted = with_adapters(case, adapters, lengths=[4, 5], slots=[0, 0])
    reference = run_op(partial(ReferenceInterpreter, dtype=np.float64, activations="int8"), adapted).rows
    np.testing.assert_allclose(run_op(native, adapted).rows, reference, atol=2e-2)


@pytest.mark.parametrize("isa", ISAS)
def test_adapters_are_the_frozen_arithmetic(isa):
    """Operation by operation as docs/adr/0001-arithmetic.md has it, with bias and residual."""
    rng = np.random.default_rng(0)
    case = linear_case(rng, rows_per_part=17, columns=40, num_tokens=2, bias=True, accumulate=True)
    base = run_op(partial(native, isa=isa), case).rows
    (weight,) = case.program.ops[-1].parts
    pair = random_pair(rng, weight, 5)
    x = case.inputs[0][1]
    want = base.copy()
    for row, column in np.ndindex(*want.shape):
        change = np.float32(0)
        for j in range(5):
            product = np.float32(0)
            for k in range(40):
                product = fma(x[row, k], pair.a[j, k], product)
            change = fma(product, pair.b[column, j], change)
        want[row, column] = base[row, column] + change * np.float32(pair.scale)
    adapted = with_adapters(case, {0: Adapter({weight: pair})}, lengths=[1, 1], slots=[0, 0])
    np.testing.assert_array_equal(bits(run_op(partial(native, isa=isa), adapted).rows), bits(want))


def test_a_row_of_nans_leaves_the_others_alone():
    case = mlp_case(Quantization.Q8_0, 3)
    adapters = {0: random_adapter(np.random.default_rng(1), case, ranks=[4], share=1.0)}
    case = with_adapters(case, adapters, lengths=[1, 1, 1], slots=[0, 0, 0])
    want = run_op(native, case).rows
    case.inputs[0][1][1] = np.nan
    got = run_op(native, case).rows
    assert np.isnan(got[1]).all()
    assert got[[0, 2]].tobytes() == want[[0, 2]].tobytes()


@pytest.fixture
def case():
    return mlp_case(Quantization.Q8_0, 2)


@pytest.fixture
def interpreter(case):
    interpreter = native(case.program, case.kv_spec, case.num_blocks)
    interpreter.write(*case.inputs[0])
    yield interpreter
    interpreter.close()


def test_a_slot_can_be_filled_replaced_and_emptied(case, interpreter):
    step = with_adapters(case, {}, lengths=[2], slots=[3]).step
    rng = np.random.default_rng(1)
    results = []
    for _ in range(2):
        interpreter.set_adapter(3, random_adapter(rng, case, ranks=[4], share=1.0))
        interpreter.run(step)
        results.append(interpreter.read(case.output))
    assert (results[0] != results[1]).any()
    interpreter.set_adapter(3, None)
    with pytest.raises(EngineError, match="adapter 3, which is not loaded"):
        interpreter.run(step)
    interpreter.run(case.step)


@pytest.mark.parametrize("slot", [-2, 1, 2**31 - 1])
def test_a_step_cannot_name_a_slot_that_is_empty(case, interpreter, slot):
    with pytest.raises(EngineError, match=f"a request has adapter {slot}, which is not loaded"):
        interpreter.run(with_adapters(case, {}, lengths=[2], slots=[slot]).step)


def test_a_step_names_one_slot_for_each_request(case, interpreter):
    step = replace(case.step, adapter_slots=np.array([NO_ADAPTER] * 2, np.int32))
    with pytest.raises(EngineError, match="1 requests, but 2 adapter slots"):
        interpreter.run(step)


def test_an_adapter_that_does_not_fit_is_refused(case, interpreter):
    rng = np.random.default_rng(0)
    weight = case.program.ops[2].parts[0]
    good = random_pair(rng, weight, 4)
    stranger = random_weight(rng, (96, 64), Quantization.F32)
    for pairs, expected in [
        ({stranger: good}, "is no part of a linear of the program"),
        ({weight: random_pair(rng, weight, 257)}, "has rank 257, it must be 1 … 256"),
        ({weight: LowRankPair(good.a[:, :32], good.b, 1.0)}, r"needs matrices \(4, 64\) and \(96, 4\)"),
        ({weight: LowRankPair(good.a, good.b[:, :3], 1.0)}, r"got \(4, 64\) and \(96, 3\)"),
    ]:
        with pytest.raises(ValueError, match=expected):
            interpreter.set_adapter(0, Adapter(pairs))
    with pytest.raises(EngineError, match="place is out of range"):
        interpreter.set_adapter(-1, Adapter({weight: good}))
