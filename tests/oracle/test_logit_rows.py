"""A step that wants only its logit rows gives their bits, and leaves the K and V, of one that wants all."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from harness.adapters import random_pair
from harness.steps import Part, make_step, shuffled_block_tables
from harness.tiny_model import NUM_LAYERS, VOCAB_SIZE, tiny_kv_spec, tiny_program
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import EngineError
from octavo.kernels.adapter import Adapter
from octavo.kernels.dataflow import keep_logit_rows
from octavo.kernels.interpreter import Interpreter, StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import KeepLogitRows, Linear, PagedAttention, Program
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.select import available_isas
from octavo.kernels.weight import Quantization

native = partial(NativeInterpreter, max_num_tokens=1024, max_logit_rows=4, num_threads=2)
INTERPRETERS = [partial(native, isa=isa) for isa in available_isas()] + [ReferenceInterpreter]
NAMES = [*available_isas(), "reference"]
COMMON_TOKENS = 272
"""Of two of the requests, more than a partition, so that a native step may read them together."""


def suffixes(draw: st.DrawFn, parts: list[Part]) -> list[int]:
    """The last rows of each request, or none of them; at times all rows of the step."""
    if draw(st.booleans()):
        counts = [draw(st.integers(0, min(part.num_new_tokens, 3))) for part in parts]
    else:
        counts = [part.num_new_tokens for part in parts]
    ends = np.cumsum([part.num_new_tokens for part in parts])
    return [row for end, count in zip(ends, counts, strict=True) for row in range(end - count, end)]


@st.composite
def steps(draw: st.DrawFn) -> tuple[StepInput, int]:
    """Prompts, chunks and single tokens, two requests beginning with the same blocks; and how many blocks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sharing = st.builds(Part, st.integers(COMMON_TOKENS, COMMON_TOKENS + 9), st.sampled_from([1, 1, 2, 12]))
    others = st.builds(Part, st.sampled_from([0, 3, 300]), st.sampled_from([0, 1, 1, 5, 40]))
    parts = [draw(sharing), draw(sharing), *draw(st.lists(others, max_size=3))]
    lengths = [max(part.seq_len, 1) for part in parts]
    num_blocks = sum(-(-length // 8) for length in lengths)
    tables = shuffled_block_tables(rng, lengths, block_size=8, num_blocks=num_blocks)
    tables[1, : COMMON_TOKENS // 8] = tables[0, : COMMON_TOKENS // 8]
    num_tokens = sum(part.num_new_tokens for part in parts)
    slots = draw(st.none() | st.just(rng.integers(-1, 2, len(parts)).astype(np.int32)))
    step = make_step(
        parts,
        tables,
        token_ids=rng.integers(0, VOCAB_SIZE, num_tokens),
        logit_rows=suffixes(draw, parts),
    )
    return replace(step, adapter_slots=slots), num_blocks


def adapters_of(program: Program) -> list[Adapter]:
    parts = [part for op in program.ops if isinstance(op, Linear) for part in op.parts]
    rng = np.random.default_rng(0)
    return [Adapter({part: random_pair(rng, part, rank) for part in parts}) for rank in (2, 5)]


def run(
    make: Callable[..., Interpreter], program: Program, step: StepInput, num_blocks: int, kv_dtype: str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The logits, and all blocks afterwards; they held random numbers before."""
    interpreter = make(program, tiny_kv_spec(dtype=kv_dtype), num_blocks)
    rng = np.random.default_rng(1)
    places = [(layer, block) for layer in range(NUM_LAYERS) for block in range(num_blocks)]
    for place in places:
        shape = interpreter.kv_store.block(*place).shape
        interpreter.kv_store.write_block(*place, rng.normal(size=shape).astype(np.float32))
    for slot, adapter in enumerate(adapters_of(program)):
        interpreter.set_adapter(slot, adapter)
    logits = interpreter.run(step).copy()
    blocks = [interpreter.kv_store.block(*place) for place in places]
    interpreter.close()
    return logits, blocks


@pytest.mark.parametrize("make", INTERPRETERS, ids=NAMES)
@settings(deadline=None, max_examples=25)
@given(
    case=steps(),
    quantization=st.sampled_from([Quantization.F32, Quantization.Q4_1]),
    kv_dtype=st.sampled_from(["float32", "int8"]),
    window_layer=st.integers(0, 1),
)
def test_the_same_logits_and_cache_as_with_all_rows(make, case, quantization, kv_dtype, window_layer):
    step, num_blocks = case
    program = tiny_program(
        np.random.default_rng(2), quantization=quantization, window=20, window_layer=window_layer
    )
    want_logits, want_blocks = run(make, program, step, num_blocks, kv_dtype)
    only = replace(step, only_logit_rows=True)
    logits, blocks = run(make, program, only, num_blocks, kv_dtype)
    if make is ReferenceInterpreter:  # numpy's products: the last bits depend on how many rows there are
        np.testing.assert_allclose(logits, want_logits, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(logits.view(np.int32), want_logits.view(np.int32))
    np.testing.assert_array_equal(blocks, want_blocks)


def prompt(num_tokens: int, **changes) -> StepInput:
    step = make_step([Part(0, num_tokens)], np.zeros((1, 1)), token_ids=range(num_tokens))
    return replace(step, **changes)


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize("make", INTERPRETERS, ids=NAMES)
def test_other_rows_have_no_logits_then(make):
    interpreter = make(tiny_program(np.random.default_rng(2)), tiny_kv_spec(), 1)
    interpreter.run(prompt(6, only_logit_rows=True))
    with pytest.raises(EngineError, match="kept nothing but its logit rows"):
        interpreter.logits(int32(2))
    want = interpreter.run(prompt(6, logit_rows=int32(2))).copy()
    np.testing.assert_allclose(interpreter.logits(int32(2)), want, rtol=1e-5, atol=1e-5)
    interpreter.run(prompt(6, logit_rows=int32(*range(6)), only_logit_rows=True))  # which are all there are
    np.testing.assert_allclose(interpreter.logits(int32(2)), want, rtol=1e-5, atol=1e-5)
    interpreter.close()


@pytest.mark.parametrize("make", INTERPRETERS, ids=NAMES)
@pytest.mark.parametrize("rows", [(4, 3), (0, 2), (3, 3), (5, 1), (4, 2)])
def test_logit_rows_out_of_order_are_refused(make, rows):
    """Two requests with three rows each."""
    interpreter = make(tiny_program(np.random.default_rng(2)), tiny_kv_spec(), 2)
    step = make_step([Part(0, 3)] * 2, np.array([[0], [1]]), logit_rows=rows)
    with pytest.raises(EngineError, match="in order, and consecutive within a request"):
        interpreter.run(replace(step, only_logit_rows=True))
    assert interpreter.run(step).shape == (2, VOCAB_SIZE)
    interpreter.close()


@pytest.mark.parametrize("make", INTERPRETERS[:-1], ids=NAMES[:-1])
def test_the_step_after_one_without_logit_rows(make):
    """Nothing that one step asks for ahead of time outlives its arrays."""
    program = tiny_program(np.random.default_rng(2), quantization=Quantization.Q4_1)
    interpreter = make(program, tiny_kv_spec(), 12 * 126)
    want = None
    for only_logit_rows in (False, True):
        tables = np.zeros((12, 1 << 20), np.int32)  # so large that it is given back to the system at once
        tables[:, :126] = np.arange(12 * 126).reshape(12, 126)
        step = make_step([Part(1000, 3)] * 12, tables, logit_rows=())
        interpreter.run(replace(step, only_logit_rows=only_logit_rows))
        del tables, step
        logits = interpreter.run(make_step([Part(0, 40)], np.arange(5)[None], token_ids=range(40))).copy()
        want = logits if want is None else want
        np.testing.assert_array_equal(logits.view(np.int32), want.view(np.int32))
    interpreter.close()


def test_rows_that_share_a_pass_only_once_the_others_are_gone():
    """A pass takes few rows of a request: attention of those that are left needs more room than before."""
    tables = np.arange(72).reshape(2, 36)
    tables[1, : COMMON_TOKENS // 8] = tables[0, : COMMON_TOKENS // 8]
    step = make_step([Part(COMMON_TOKENS, 12)] * 2, tables, token_ids=range(24))
    program = tiny_program(np.random.default_rng(2))
    want, got = (
        run(partial(native, num_threads=1), program, each, 72, "int8")[0]
        for each in (step, replace(step, only_logit_rows=True))
    )
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_only_what_is_read_behind_the_last_layers_cache_is_cut():
    program = tiny_program(np.random.default_rng(2))
    places = [i for i, op in enumerate(program.ops) if isinstance(op, KeepLogitRows)]
    attention = max(i for i, op in enumerate(program.ops) if isinstance(op, PagedAttention))
    assert places == [attention - 2, attention - 1]
    kept = {program.ops[i].out for i in places}
    assert kept == {program.ops[attention].q, program.ops[0].out}
    with pytest.raises(ValueError, match="drops rows already"):
        keep_logit_rows(program)
