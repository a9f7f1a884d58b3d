"""`NativeInterpreter` around its kernels: what it refuses, what it shares, what it gives back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from octavo.errors import EngineError, KernelUnavailableError, ModelLoadError
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program, RopeSpec, RopeStyle
from octavo.kernels.quantization import BLOCK_LAYOUTS
from octavo.kernels.weight import Quantization, Weight
from octavo.kv.spec import KVCacheSpec

SPEC = KVCacheSpec(block_size=8, num_layers=2, num_kv_heads=1, head_dim=16, dtype="float16")
ROPE = RopeSpec(RopeStyle.HALF_SPLIT, 16, tuple(0.5**i for i in range(8)))
VOCAB_SIZE = 20


def f32_weight(shape: tuple[int, ...], seed: int) -> Weight:
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return Weight("weight", shape, Quantization.F32, values.reshape(-1).view(np.uint8))


def small_model(*, layer: int = 1) -> Program:
    """An embedding tied to the head, and one layer of attention."""
    program = Program()
    table = f32_weight((VOCAB_SIZE, 16), 0)
    x = program.embed(table)
    h = program.rms_norm(x, f32_weight((16,), 1), eps=1e-5)
    qkv = program.linear(h, f32_weight((64, 16), 2))
    q = program.rope_and_write_kv(qkv, layer=layer, num_heads=2, num_kv_heads=1, head_dim=16, rope=ROPE)
    attended = program.paged_attention(q, layer=layer, num_kv_heads=1, head_dim=16, scale=0.25)
    x = program.linear(attended, f32_weight((16, 32), 3), add_to=x)
    program.logits(x, table)
    return program


def small_step() -> StepInput:
    """One request: 9 tokens of its prompt, in blocks 3 and 1 of 4."""
    return StepInput(
        token_ids=np.arange(9, dtype=np.int32),
        positions=np.arange(9, dtype=np.int32),
        query_start_loc=np.array([0, 9], np.int32),
        seq_lens=np.array([9], np.int32),
        block_tables=np.array([[3, 1, 99]], np.int32),
        logit_rows=np.array([8], np.int32),
    )


def make(program: Program | None = None, **options) -> NativeInterpreter:
    settings = {"max_num_tokens": 12, "max_logit_rows": 2, "num_threads": 2} | options
    return NativeInterpreter(program or small_model(), SPEC, 4, **settings)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[NativeInterpreter]:
    interpreter = make()
    yield interpreter
    interpreter.close()


def test_a_step_gives_logits_of_the_wanted_rows(interpreter: NativeInterpreter):
    logits = interpreter.run(small_step()).copy()
    assert logits.shape == (1, VOCAB_SIZE)
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(interpreter.logits(np.array([8], np.int32)), logits)
    assert interpreter.run(replace(small_step(), logit_rows=np.empty(0, np.int32))).shape == (0, VOCAB_SIZE)


def test_a_step_that_could_not_run_has_no_logits(interpreter: NativeInterpreter):
    interpreter.run(small_step())
    with pytest.raises(EngineError, match="adapter 7, which is not loaded"):
        interpreter.run(replace(small_step(), adapter_slots=np.array([7], np.int32)))
    with pytest.raises(EngineError, match="the last step did not run"):
        interpreter.logits(np.array([8], np.int32))
    want = interpreter.run(small_step()).copy()
    np.testing.assert_array_equal(interpreter.logits(np.array([8], np.int32)), want)


@pytest.mark.parametrize("quantization", Quantization)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_named(quantization: Quantization, value: float):
    layout = BLOCK_LAYOUTS[quantization]
    raw = np.zeros(40 * layout.num_bytes * (256 // layout.num_elements), np.uint8)
    dtype = {Quantization.F32: "<f4", Quantization.BF16: "<u2"}.get(quantization, "<f2")
    stored = np.float32(value).view(np.uint32) >> 16 if quantization is Quantization.BF16 else value
    at = {"Q6_K": 208, "Q2_K": 80, "Q3_K": 108}.get(quantization, 0) + 33 * (len(raw) // 40)
    # A scale that is infinite makes a NaN or an infinity of every weight, whatever its integer.
    raw[at : at + np.dtype(dtype).itemsize] = np.array([stored], dtype).view(np.uint8)
    program = Program()
    program.linear(program.input(256), Weight("blk.0.ffn_up.weight", (40, 256), quantization, raw))
    with pytest.raises(ModelLoadError, match=r"tensor 'blk\.0\.ffn_up\.weight' holds a NaN or an infinity"):
        make(program)


def test_a_norm_weight_that_is_not_finite_is_named():
    program = Program()
    values = np.array([1, 2, np.nan, 4] * 4, np.float32)
    weight = Weight("norm", (16,), Quantization.F32, values.view(np.uint8))
    program.rms_norm(program.input(16), weight, eps=1e-5)
    with pytest.raises(ModelLoadError, match="tensor 'norm' holds a NaN"):
        make(program)


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_tables": int32(3, 5, 99).reshape(1, 3)}, "block id 5 is outside 0 … 4"),
        ({"block_tables": int32(3, -1, 99).reshape(1, 3)}, "block id -1 is outside"),
        ({"block_tables": int32(3).reshape(1, 1)}, "number of blocks 2 is outside 0 … 1"),
        ({"token_ids": int32(*range(8), VOCAB_SIZE)}, "token id 20 is outside 0 … 19"),
        ({"token_ids": int32(*range(8), -1)}, "token id -1 is outside"),
        ({"positions": int32(*range(1, 10))}, "position 9 is outside 0 … 8"),
        ({"positions": int32(*range(-1, 8))}, "position -1 is outside"),
        ({"positions": int32(*range(8), 7)}, "positions must be consecutive"),
        ({"positions": int32(*range(8))}, "9 tokens, but 8 positions"),
        ({"seq_lens": int32(8)}, "position 8 is outside 0 … 7"),
        ({"seq_lens": int32(2**31 - 1)}, "number of blocks"),
        ({"seq_lens": int32(9, 9)}, "2 sequence lengths need 3 query starts"),
        ({"query_start_loc": int32(0, 8)}, "query_start_loc must begin at 0 and end at"),
        ({"query_start_loc": int32(1, 9)}, "query_start_loc must begin at 0 and end at"),
        ({"logit_rows": int32(9)}, "logit row 9 is outside 0 … 8"),
        ({"logit_rows": int32(-1)}, "logit row -1 is outside"),
    ],
)
def test_a_step_out_of_range_is_refused(interpreter: NativeInterpreter, changes: dict, message: str):
    with pytest.raises(EngineError, match=message):
        interpreter.run(replace(small_step(), **changes))


def test_starts_that_decrease_are_refused(interpreter: NativeInterpreter):
    step = replace(
        small_step(),
        query_start_loc=int32(0, 10, 9),
        seq_lens=int32(9, 9),
        block_tables=int32(3, 1, 2, 0).reshape(2, 2),
    )
    with pytest.raises(EngineError, match="must not decrease"):
        interpreter.run(step)


def test_too_many_tokens_are_refused():
    interpreter = make(max_num_tokens=8)
    with pytest.raises(EngineError, match="number of tokens 9 is outside 0 … 8"):
        interpreter.run(small_step())
    interpreter.close()


def test_rows_of_the_head_must_be_the_steps(interpreter: NativeInterpreter):
    interpreter.run(small_step())
    with pytest.raises(EngineError, match="logit row 9 is outside"):
        interpreter.logits(int32(9))


def test_an_empty_step_runs(interpreter: NativeInterpreter):
    empty = np.empty(0, np.int32)
    step = StepInput(
        token_ids=empty,
        positions=empty,
        query_start_loc=int32(0),
        seq_lens=empty,
        block_tables=np.empty((0, 3), np.int32),
        logit_rows=empty,
    )
    assert interpreter.run(step).shape == (0, VOCAB_SIZE)


def test_a_tied_weight_is_packed_once():
    table = f32_weight((32, 16), 0)
    sizes = []
    inner = f32_weight((16, 32), 2)
    for head in (table, f32_weight((32, 16), 1)):
        program = Program()
        hidden = program.linear(program.linear(program.input(16), table), inner)
        program.logits(hidden, head)
        interpreter = make(program)
        sizes.append(interpreter.weight_bytes)
        interpreter.close()
    assert sizes[1] - sizes[0] == 32 * 16 * 4


def test_a_buffer_is_quantised_once_however_many_read_it():
    """Two linears of one buffer with a write to another between them; then one after the buffer changed."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 60, 32 * 34, np.uint8)
    weight = Weight("q8", (32, 32), Quantization.Q8_0, raw)
    program = Program()
    x, y = program.input(32), program.input(32)
    first = program.linear(x, weight)
    program.linear(x, weight, add_to=y)
    again = program.linear(program.linear(y, weight, add_to=x), weight)
    program.linear(y, weight)  # keeps y's storage to the end
    interpreter = make(program)
    rows = rng.normal(size=(3, 32)).astype(np.float32)
    interpreter.write(x, rows)
    interpreter.write(y, np.zeros((3, 32), np.float32))
    step = replace(
        small_step(),
        token_ids=int32(0, 0, 0),
        positions=int32(0, 1, 2),
        query_start_loc=int32(0, 3),
        seq_lens=int32(3),
        logit_rows=int32(),
    )
    interpreter.run(step)
    np.testing.assert_array_equal(interpreter.read(first), interpreter.read(y))
    assert not np.array_equal(interpreter.read(first), interpreter.read(again))
    interpreter.close()


def test_progress_ends_with_everything_done():
    calls: list[tuple[int, int]] = []
    interpreter = make(progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (interpreter.weight_bytes, interpreter.weight_bytes)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    interpreter.close()


def test_a_program_that_does_not_fit_the_cache_is_refused():
    with pytest.raises(EngineError, match="layer is not in the KV cache"):
        make(small_model(layer=2))


def test_a_weight_of_another_size_than_its_shape_is_refused():
    program = Program()
    whole = f32_weight((4, 16), 0)
    program.linear(program.input(16), Weight("cut", (4, 16), Quantization.F32, whole.raw[:-4]))
    with pytest.raises(EngineError, match="has 252 bytes, its shape needs 256"):
        make(program)


def test_an_instruction_set_that_is_none_is_refused():
    with pytest.raises(KernelUnavailableError, match=r"available: .*generic, or auto"):
        make(isa="mmx")


def test_far_more_threads_than_processors_give_the_same_bits():
    """Most of them come too late for most pieces of work, or are stopped while they hold one."""
    alone = make(num_threads=1)
    want = np.array(alone.run(small_step()))
    alone.close()
    crowded = [make(num_threads=24) for _ in range(3)]

    def run_often(interpreter: NativeInterpreter) -> list[bytes]:
        return [interpreter.run(small_step()).tobytes() for _ in range(200)]

    with ThreadPoolExecutor(len(crowded)) as callers:
        for results in callers.map(run_often, crowded):
            assert set(results) == {want.tobytes()}
    for interpreter in crowded:
        interpreter.close()


def test_closing_twice_is_fine_and_using_it_afterwards_is_not():
    interpreter = make()
    interpreter.close()
    interpreter.close()
    with pytest.raises(EngineError, match="the interpreter is closed"):
        interpreter.run(small_step())
