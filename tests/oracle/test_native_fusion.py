"""Ops that the native compiler runs as one give the bits of the same ops run one by one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from harness.op_cases import random_rows
from harness.steps import rows_only_step
from harness.weights import random_weight, vector_weight
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Activation, Buffer, KeepLogitRows, Program, RopeSpec, RopeStyle
from octavo.kernels.select import available_isas
from octavo.kernels.weight import Quantization, Weight
from octavo.kv.spec import KVCacheSpec

ISAS = available_isas()
NUM_TOKENS = 9
NUM_BLOCKS = 4

seeds = st.integers(0, 2**32)
formats = st.sampled_from([Quantization.Q4_1, Quantization.Q8_0, Quantization.Q6_K, Quantization.F16])


def cache(head_dim: int) -> KVCacheSpec:
    return KVCacheSpec(block_size=16, num_layers=1, num_kv_heads=1, head_dim=head_dim, dtype="float16")


DEFAULT_CACHE = cache(16)


def run(
    program: Program,
    inputs: Sequence[tuple[Buffer, np.ndarray]],
    outputs: Sequence[Buffer],
    *,
    isa: str = ISAS[0],
    num_threads: int = 2,
    kv_spec: KVCacheSpec = DEFAULT_CACHE,
) -> list[np.ndarray]:
    """Rows of the outputs; none of them may be read by an op of the program."""
    num_tokens = len(inputs[0][1])
    interpreter = NativeInterpreter(
        program,
        kv_spec,
        NUM_BLOCKS,
        max_num_tokens=num_tokens,
        max_logit_rows=1,
        isa=isa,
        num_threads=num_threads,
    )
    rng = np.random.default_rng(0)
    for block_id in range(NUM_BLOCKS):
        content = rng.normal(size=(2, 16, kv_spec.num_kv_heads, kv_spec.head_dim)).astype(np.float16)
        interpreter.kv_store.write_block(0, block_id, content)
    for buffer, rows in inputs:
        interpreter.write(buffer, rows)
    interpreter.run(rows_only_step(num_tokens))
    results = [interpreter.read(output) for output in outputs]
    interpreter.close()
    return results


def linear_alone(rows: np.ndarray, *parts: Weight, isa: str, bias: Weight | None = None) -> np.ndarray:
    program = Program()
    x = program.input(rows.shape[1])
    [result] = run(program, [(x, rows)], [program.linear(x, *parts, bias=bias)], isa=isa)
    return result


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=15)
@given(seed=seeds, quantization=formats, width=st.sampled_from([256, 512]))
def test_a_norm_quantises_for_the_linears_that_read_it(isa, seed, quantization, width):
    rng = np.random.default_rng(seed)
    rows, norm = random_rows(rng, NUM_TOKENS, width), vector_weight(rng, width)
    first, second = (random_weight(rng, (40, width), each) for each in (quantization, Quantization.Q4_1))
    alone = Program()
    x = alone.input(width)
    [normed] = run(alone, [(x, rows)], [alone.rms_norm(x, norm, eps=1e-5)], isa=isa)
    fused = Program()
    x = fused.input(width)
    h = fused.rms_norm(x, norm, eps=1e-5)
    outputs = [fused.linear(h, first), fused.linear(h, second)]
    for got, weight in zip(run(fused, [(x, rows)], outputs, isa=isa), (first, second), strict=True):
        assert_same_bits(got, linear_alone(normed, weight, isa=isa))


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=25)
@given(
    seed=seeds,
    gate_up_format=formats,
    down_format=formats,
    activation=st.sampled_from(Activation),
    width=st.sampled_from([256, 768]),
    num_tokens=st.sampled_from([1, 2, 9]),
    num_threads=st.integers(1, 3),
    has_bias=st.booleans(),
)
def test_an_activation_runs_with_the_linear_that_makes_its_gates(
    isa, seed, gate_up_format, down_format, activation, width, num_tokens, num_threads, has_bias
):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, num_tokens, 256)
    gate, up = (random_weight(rng, (width, 256), gate_up_format) for _ in range(2))
    down = random_weight(rng, (40, width), down_format)
    bias = vector_weight(rng, 2 * width, name="bias") if has_bias else None
    gate_up = linear_alone(rows, gate, up, bias=bias, isa=isa)
    alone = Program()
    x = alone.input(2 * width)
    [activated] = run(alone, [(x, gate_up)], [alone.gated_activation(x, activation=activation)], isa=isa)
    fused = Program()
    x = fused.input(256)
    h = fused.gated_activation(fused.linear(x, gate, up, bias=bias), activation=activation)
    [got] = run(fused, [(x, rows)], [fused.linear(h, down)], isa=isa, num_threads=num_threads)
    assert_same_bits(got, linear_alone(activated, down, isa=isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [20, 48, 64])
def test_an_activation_that_is_a_result_is_kept(isa, width):
    """Widths that are not whole groups, and rows that nobody inside the program reads."""
    rng = np.random.default_rng(width)
    rows = random_rows(rng, NUM_TOKENS, 256)
    gate, up = (random_weight(rng, (width, 256), Quantization.Q4_1) for _ in range(2))
    alone = Program()
    x = alone.input(2 * width)
    gate_up = linear_alone(rows, gate, up, isa=isa)
    [want] = run(alone, [(x, gate_up)], [alone.gated_activation(x, activation=Activation.SILU)], isa=isa)
    fused = Program()
    x = fused.input(256)
    output = fused.gated_activation(fused.linear(x, gate, up), activation=Activation.SILU)
    assert_same_bits(run(fused, [(x, rows)], [output], isa=isa)[0], want)


def test_gates_that_another_op_reads_are_left_alone():
    rng = np.random.default_rng(0)
    rows = random_rows(rng, NUM_TOKENS, 256)
    gate, up = (random_weight(rng, (64, 256), Quantization.Q4_1) for _ in range(2))
    reader = random_weight(rng, (40, 128), Quantization.Q4_1)
    program = Program()
    x = program.input(256)
    gate_up = program.linear(x, gate, up)
    program.gated_activation(gate_up, activation=Activation.SILU)
    [got] = run(program, [(x, rows)], [program.linear(gate_up, reader)])
    assert_same_bits(got, linear_alone(linear_alone(rows, gate, up, isa=ISAS[0]), reader, isa=ISAS[0]))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("head_dim", [16, 64, 80])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_attention_quantises_for_the_linears_that_read_it(isa, head_dim, num_threads):
    """Heads of whole groups quantise their own outputs, others leave it to an op of its own."""
    rng = np.random.default_rng(head_dim)
    num_heads = 4
    queries = random_rows(rng, NUM_TOKENS, num_heads * head_dim)
    weight = random_weight(rng, (40, num_heads * head_dim), Quantization.Q4_1)

    def attention(then_linear: bool) -> np.ndarray:
        program = Program()
        q = program.input(num_heads * head_dim)
        output = program.paged_attention(q, layer=0, num_kv_heads=1, head_dim=head_dim, scale=0.2)
        if then_linear:
            output = program.linear(output, weight)
        kv_spec = cache(head_dim)
        return run(program, [(q, queries)], [output], isa=isa, num_threads=num_threads, kv_spec=kv_spec)[0]

    assert_same_bits(attention(True), linear_alone(attention(False), weight, isa=isa))


@pytest.mark.parametrize("isa", ISAS)
@settings(deadline=None, max_examples=12)
@given(
    seed=seeds,
    head_dim=st.integers(1, 16).map(lambda vectors: 16 * vectors),
    scale=st.sampled_from([0.1, 1.0, 3e-39]),
    is_bad=st.booleans(),
    keeps_rows=st.booleans(),
)
def test_queries_of_an_int8_cache_are_made_by_the_op_that_turns_them(
    isa, seed, head_dim, scale, is_bad, keeps_rows
):
    """Once somebody else reads them, they stay floats, and attention makes its own of them."""
    rng = np.random.default_rng(seed)
    num_heads = 3
    rows = random_rows(rng, NUM_TOKENS, (num_heads + 2) * head_dim)
    if is_bad:
        rows[rng.integers(NUM_TOKENS), rng.integers(rows.shape[1])] = rng.choice([np.nan, np.inf, 1e38])
    other_weight = random_weight(rng, (8, num_heads * head_dim), Quantization.F32)
    rope = RopeSpec(RopeStyle.HALF_SPLIT, 16, tuple(0.5**i for i in range(8)))
    kv_spec = replace(cache(head_dim), dtype="int8")

    def attended(other_reader: bool) -> list[np.ndarray]:
        program = Program()
        x = program.input(rows.shape[1])
        queries = program.rope_and_write_kv(
            x, layer=0, num_heads=num_heads, num_kv_heads=1, head_dim=head_dim, rope=rope
        )
        if keeps_rows:
            program.ops.append(KeepLogitRows(queries))
        output = program.paged_attention(queries, layer=0, num_kv_heads=1, head_dim=head_dim, scale=scale)
        if other_reader:
            program.linear(queries, other_weight)
        return run(program, [(x, rows)], [output, queries], isa=isa, kv_spec=kv_spec)

    (got, made), (want, turned) = attended(other_reader=False), attended(other_reader=True)
    np.testing.assert_array_equal(got, want)
    assert (made != turned).any()
