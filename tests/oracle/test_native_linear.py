"""linear in native code: the bits of the frozen arithmetic, on every instruction set, for any shape."""

from collections.abc import Sequence
from functools import partial

import linear_emulation
import numpy as np
import pytest
from harness.check import check_op
from harness.op_cases import NO_CACHE, linear_case, logits_case, random_rows
from harness.steps import rows_only_step
from harness.weights import random_weight, vector_weight
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program
from octavo.kernels.select import available_isas
from octavo.kernels.weight import Quantization, Weight

ISAS = available_isas()
FORMATS = tuple(Quantization)


def run_linear(
    x: np.ndarray,
    parts: Sequence[Weight],
    *,
    bias: Weight | None = None,
    residual: np.ndarray | None = None,
    isa: str = "auto",
    num_threads: int = 1,
    chunk: int | None = None,
) -> np.ndarray:
    """``x`` [num_tokens, columns] times the parts, in steps of ``chunk`` rows."""
    program = Program()
    rows = program.input(x.shape[1])
    width = sum(part.shape[0] for part in parts)
    into = program.input(width) if residual is not None else None
    out = program.linear(rows, *parts, bias=bias, add_to=into)
    chunk = chunk or len(x)
    interpreter = NativeInterpreter(
        program, NO_CACHE, 1, max_num_tokens=chunk, max_logit_rows=1, num_threads=num_threads, isa=isa
    )
    results = []
    for start in range(0, len(x), chunk):
        piece = x[start : start + chunk]
        interpreter.write(rows, piece)
        if into is not None:
            interpreter.write(into, residual[start : start + chunk])
        interpreter.run(rows_only_step(len(piece)))
        results.append(interpreter.read(out))
    interpreter.close()
    return np.concatenate(results)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(got[finite].view(np.uint32), want[finite].view(np.uint32))


def test_the_emulated_fma_rounds_once():
    # 1 + 2⁻²³ squared is 1 + 2⁻²² + 2⁻⁴⁶: two roundings lose the last term before it can decide a tie.
    a = np.array([1 + 2**-23], np.float32)
    c = np.array([2**-24], np.float32)
    exact = (1 + 2**-23) ** 2 + 2**-24  # fits in float64
    assert linear_emulation.fma(a, a, c)[0] == np.nextafter(np.float32(1 + 2**-22), np.float32(2))
    assert exact > 1 + 2**-22 + 2**-24


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("quantization", FORMATS)
def test_bits_are_those_of_the_frozen_arithmetic(quantization: Quantization, isa: str):
    rng = np.random.default_rng(1)
    for num_tokens, num_rows, columns in ((1, 70, 512), (11, 37, 256), (2, 1, 768)):
        x = random_rows(rng, num_tokens, columns) * 10.0 ** rng.integers(-2, 3, (num_tokens, 1))
        x = x.astype(np.float32)
        weight = random_weight(rng, (num_rows, columns), quantization)
        assert_same_bits(run_linear(x, [weight], isa=isa), linear_emulation.linear(x, weight))


@pytest.mark.parametrize("columns", [1, 7, 31, 33])
@pytest.mark.parametrize("quantization", [Quantization.F32, Quantization.F16, Quantization.BF16])
def test_float_weights_of_any_depth(quantization: Quantization, columns: int):
    rng = np.random.default_rng(2)
    x = random_rows(rng, 5, columns)
    weight = random_weight(rng, (19, columns), quantization)
    for isa in ISAS:
        assert_same_bits(run_linear(x, [weight], isa=isa), linear_emulation.linear(x, weight))


@pytest.mark.parametrize("isa", ISAS)
def test_parts_bias_and_residual(isa: str):
    rng = np.random.default_rng(3)
    parts = [random_weight(rng, (5 + 3 * i, 256), kind) for i, kind in enumerate(FORMATS)]
    width = sum(part.shape[0] for part in parts)
    x, residual, bias = random_rows(rng, 9, 256), random_rows(rng, 9, width), vector_weight(rng, width)
    products = np.concatenate([linear_emulation.linear(x, part) for part in parts], axis=1)
    biased = products + bias.raw.view(np.float32)
    assert_same_bits(run_linear(x, parts, bias=bias, isa=isa), biased)
    assert_same_bits(run_linear(x, parts, residual=residual, isa=isa), residual + products)
    assert_same_bits(run_linear(x, parts, bias=bias, residual=residual, isa=isa), residual + biased)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_threads", [1, 3, 24])
@pytest.mark.parametrize("num_tokens", [1, 2, 8, 9])
@pytest.mark.parametrize("kinds", [("Q4_1", "F16", "Q8_0"), ("F16", "Q4_1")])
def test_parts_of_several_kinds_and_pieces(isa, num_threads, num_tokens, kinds):
    """Pieces of several bundles, the last half empty; few rows of floats take four panels at once."""
    rng = np.random.default_rng(7)
    widths = (1030, 33, 17)
    parts = [
        random_weight(rng, (width, 64), Quantization(kind))
        for width, kind in zip(widths, kinds, strict=False)
    ]
    x = random_rows(rng, num_tokens, 64)
    products = np.concatenate([linear_emulation.linear(x, part) for part in parts], axis=1)
    assert_same_bits(run_linear(x, parts, isa=isa, num_threads=num_threads), products)


def test_row_blocks_of_several_parts():
    """So deep that few rows fill a second-level cache, and the work is cut along both."""
    rng = np.random.default_rng(8)
    parts = [random_weight(rng, (width, 16384), Quantization("Q4_1")) for width in (40, 17)]
    x = random_rows(rng, 40, 16384)
    products = np.concatenate([linear_emulation.linear(x, part) for part in parts], axis=1)
    assert_same_bits(run_linear(x, parts, num_threads=3), products)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("num_tokens", "num_threads"), [(128, 2), (131, 2), (191, 3), (193, 3), (259, 4)])
def test_many_rows_are_cut_by_rows(isa, num_tokens, num_threads):
    """With 64 rows for each thread, each has rows of its own; just below, panels of its own."""
    rng = np.random.default_rng(9)
    parts = [random_weight(rng, (width, 64), Quantization("Q4_1")) for width in (70, 17)]
    x = random_rows(rng, num_tokens, 64)
    products = np.concatenate([linear_emulation.linear(x, part) for part in parts], axis=1)
    assert_same_bits(run_linear(x, parts, isa=isa, num_threads=num_threads), products)


def test_more_row_blocks_than_rows_fill():
    """16 rows fill a block, 133 rows 9 blocks; a tenth, to have as many for both threads, has none."""
    rng = np.random.default_rng(10)
    parts = [random_weight(rng, (17, 16384), Quantization("Q4_1"))]
    x = random_rows(rng, 133, 16384)
    assert_same_bits(run_linear(x, parts, num_threads=2), linear_emulation.linear(x, parts[0]))


@settings(deadline=None, max_examples=25)
@given(
    quantization=st.sampled_from(FORMATS),
    num_tokens=st.integers(1, 40),
    num_rows=st.integers(1, 150),
    blocks=st.integers(1, 3),
    chunk=st.integers(1, 40),
    num_threads=st.integers(1, 3),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**32),
)
def test_company_chunks_and_threads_change_no_bit(
    quantization, num_tokens, num_rows, blocks, chunk, num_threads, isa, seed
):
    rng = np.random.default_rng(seed)
    x = random_rows(rng, num_tokens, 256 * blocks)
    weight = random_weight(rng, (num_rows, 256 * blocks), quantization)
    together = run_linear(x, [weight])
    assert_same_bits(run_linear(x, [weight], chunk=chunk, num_threads=num_threads, isa=isa), together)


@pytest.mark.parametrize("quantization", [Quantization.Q4_1, Quantization.Q8_0, Quantization.F16])
def test_every_instruction_set_gives_the_same_bits(quantization: Quantization):
    rng = np.random.default_rng(4)
    x = random_rows(rng, 37, 1024)
    weight = random_weight(rng, (333, 1024), quantization)
    first = run_linear(x, [weight], isa=ISAS[0])
    for isa in ISAS[1:]:
        assert_same_bits(run_linear(x, [weight], isa=isa, num_threads=2), first)


def extreme_weight(quantization: Quantization, quant_byte: int, rows: int, columns: int) -> Weight:
    """All scales 1; all integers as large (or as negative) as the format has them."""
    header = {Quantization.Q4_1: 4, Quantization.Q5_1: 4, Quantization.Q8_0: 2}[quantization]
    size = {Quantization.Q4_1: 20, Quantization.Q5_1: 24, Quantization.Q8_0: 34}[quantization]
    blocks = np.full((rows * columns // 32, size), quant_byte, np.uint8)
    blocks[:, :header] = np.array([1.0, 0.0], np.float16).view(np.uint8)[:header]
    return Weight("extreme", (rows, columns), quantization, blocks.reshape(-1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("quantization", "quant_byte"),
    [
        (Quantization.Q4_1, 0xFF),
        (Quantization.Q5_1, 0xFF),
        (Quantization.Q8_0, 0x80),
        (Quantization.Q8_0, 0x7F),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_integer_sums_are_exact_at_their_limits(
    quantization: Quantization, quant_byte: int, sign: float, isa: str
):
    weight = extreme_weight(quantization, quant_byte, rows=16, columns=64)
    x = np.full((3, 64), sign * 127, np.float32)
    quant = {0xFF: 15, 0x80: -128, 0x7F: 127}[quant_byte]
    quant = 31 if quantization is Quantization.Q5_1 else quant
    np.testing.assert_array_equal(run_linear(x, [weight], isa=isa), np.full((3, 16), sign * 127 * quant * 64))


@pytest.mark.parametrize("isa", ISAS)
def test_a_q4_0_minimum_beyond_float16_keeps_its_value(isa: str):
    blocks = np.full((16, 18), 0x00, np.uint8)  # every integer is -8
    blocks[:, :2] = np.array([60_000], np.float16).view(np.uint8)
    weight = Weight("large", (16, 32), Quantization.Q4_0, blocks.reshape(-1))
    x = np.ones((2, 32), np.float32)
    got = run_linear(x, [weight], isa=isa)
    np.testing.assert_array_equal(got, linear_emulation.linear(x, weight))
    np.testing.assert_allclose(got, -8 * 60_000.0 * 32, rtol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantization", [Quantization.Q4_1, Quantization.Q8_0, Quantization.F32])
def test_a_poisoned_row_spoils_itself_alone(quantization: Quantization, value: float):
    rng = np.random.default_rng(5)
    x = random_rows(rng, 10, 256)
    weight = random_weight(rng, (40, 256), quantization)
    for isa in ISAS:
        clean = run_linear(x, [weight], isa=isa)
        poisoned = x.copy()
        poisoned[3, 100] = value
        got = run_linear(poisoned, [weight], isa=isa)
        assert not np.isfinite(got[3]).any()
        assert_same_bits(np.delete(got, 3, axis=0), np.delete(clean, 3, axis=0))


def test_tiny_and_zero_rows():
    rng = np.random.default_rng(6)
    weight = random_weight(rng, (20, 256), Quantization.Q8_0)
    x = random_rows(rng, 4, 256)
    x[0] = 0
    x[1] *= np.float32(1e-38)  # 127 / largest overflows
    x[2] *= np.float32(1e-44)
    want = linear_emulation.linear(x, weight)
    for isa in ISAS:
        got = run_linear(x, [weight], isa=isa)
        assert_same_bits(got, want)
        assert np.isfinite(got).all()


@pytest.mark.parametrize("quantization", FORMATS)
def test_against_the_reference(quantization: Quantization):
    rng = np.random.default_rng(7)
    make = partial(NativeInterpreter, max_num_tokens=64, max_logit_rows=8, num_threads=2)
    case = linear_case(rng, quantizations=(quantization,), num_tokens=33, bias=True, accumulate=True)
    check_op(make, case, activations="int8")
    check_op(make, logits_case(rng, quantization=quantization), activations="int8")


@pytest.mark.parametrize("quantization", [Quantization.Q8_0, Quantization.F16])
def test_more_logit_rows_than_there_was_room_for(quantization: Quantization):
    rng = np.random.default_rng(8)
    program = Program()
    x = program.input(256)
    weight = random_weight(rng, (50, 256), quantization)
    program.logits(x, weight)
    rows = random_rows(rng, 20, 256)
    interpreter = NativeInterpreter(program, NO_CACHE, 1, max_num_tokens=20, max_logit_rows=1, num_threads=2)
    interpreter.write(x, rows)
    want = linear_emulation.linear(rows, weight)
    assert_same_bits(interpreter.run(rows_only_step(20, logit_rows=(7,))), want[[7]])
    everything = np.arange(20, dtype=np.int32)[::-1].copy()
    assert_same_bits(interpreter.logits(everything), want[::-1])
    assert_same_bits(interpreter.logits(everything[:2]), want[[19, 18]])
    assert interpreter.run(rows_only_step(20)).shape == (0, 50)
    interpreter.close()


@pytest.mark.parametrize("isa", ISAS)
def test_deep_rows_in_uneven_blocks_touch_nothing_behind_them(isa):
    """So deep that blocks hold 16 rows: rounded up to whole tiles, they must not outnumber the rows."""
    depth, num_rows, columns = 15_328, 100, 32
    rng = np.random.default_rng(0)
    program = Program()
    rows = program.input(depth)
    program.linear(rows, random_weight(rng, (columns, depth), Quantization.Q8_0))
    behind = program.input(columns)
    interpreter = NativeInterpreter(program, NO_CACHE, 1, max_num_tokens=num_rows, max_logit_rows=1, isa=isa)
    interpreter.write(rows, random_rows(rng, num_rows, depth))
    interpreter.write(behind, np.ones((num_rows, columns), np.float32))
    interpreter.run(rows_only_step(num_rows))
    assert (interpreter.read(behind) == 1.0).all()
    interpreter.close()
