"""Whole programs: paging, chunks, neighbours and the order of blocks do not change what is computed."""

from functools import partial

import numpy as np
import pytest
from harness.check import assert_rows_close
from harness.steps import Part, shuffled_block_tables
from harness.tiny_model import VOCAB_SIZE, all_logits, random_chunks, tiny_kv_spec, tiny_program
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ALL_IN_FLOAT64

from octavo.kernels.program import RopeStyle
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.weight import Quantization

programs = st.builds(
    lambda seed, style, window: tiny_program(np.random.default_rng(seed), rope_style=style, window=window),
    st.integers(0, 3),
    st.sampled_from(RopeStyle),
    st.sampled_from([None, 5]),
)


def logits_in_chunks(program, seed, lengths, *, block_size=8, kv_dtype="float32", make_interpreter):
    """Every token's logits of random sequences, computed by random chunks in shuffled blocks."""
    rng = np.random.default_rng(seed)
    sequences = [rng.integers(0, VOCAB_SIZE, length) for length in lengths]
    num_blocks = sum(-(-length // block_size) for length in lengths) + 2
    tables = shuffled_block_tables(rng, lengths, block_size=block_size, num_blocks=num_blocks)
    spec = tiny_kv_spec(block_size=block_size, dtype=kv_dtype)
    interpreter = make_interpreter(program, spec, num_blocks)
    return all_logits(interpreter, sequences, tables, random_chunks(rng, lengths)), sequences


def logits_whole(program, sequence):
    """The same of one sequence alone, in one step and one large block."""
    interpreter = ReferenceInterpreter(program, tiny_kv_spec(block_size=256), 1, dtype=np.float64)
    table = np.zeros((1, 1), np.int32)
    return all_logits(interpreter, [sequence], table, [[Part(0, len(sequence))]])[0]


@pytest.mark.parametrize("attention", ["paged", "contiguous"])
@settings(deadline=None, max_examples=15)
@given(
    program=programs,
    seed=st.integers(0, 2**32),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    block_size=st.sampled_from([4, 8, 16]),
)
def test_chunks_in_a_batch_are_what_the_sequence_is_alone(attention, program, seed, lengths, block_size):
    make_interpreter = partial(ReferenceInterpreter, dtype=np.float64, attention=attention)
    chunked, sequences = logits_in_chunks(
        program, seed, lengths, block_size=block_size, make_interpreter=make_interpreter
    )
    for got, sequence in zip(chunked, sequences, strict=True):
        assert_rows_close(got, logits_whole(program, sequence), ALL_IN_FLOAT64)


@settings(deadline=None, max_examples=15)
@given(
    program=programs,
    seed=st.integers(0, 2**32),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    kv_dtype=st.sampled_from(["float32", "int8"]),
)
def test_paged_is_contiguous(program, seed, lengths, kv_dtype):
    paged, contiguous = (
        logits_in_chunks(
            program,
            seed,
            lengths,
            kv_dtype=kv_dtype,
            make_interpreter=partial(ReferenceInterpreter, dtype=np.float64, attention=attention),
        )[0]
        for attention in ("paged", "contiguous")
    )
    for got, want in zip(paged, contiguous, strict=True):
        assert_rows_close(got, want, ALL_IN_FLOAT64)


def test_contiguous_sequences_of_a_reused_block_start_over():
    program = tiny_program(np.random.default_rng(0))
    interpreter = ReferenceInterpreter(program, tiny_kv_spec(), 2, dtype=np.float64, attention="contiguous")
    table = np.array([[0, 1]], np.int32)
    long, short = np.arange(12), np.arange(20, 25)
    all_logits(interpreter, [long], table, [[Part(0, 12)]])
    got = all_logits(interpreter, [short], table, [[Part(0, 3)], [Part(3, 2)]])[0]
    assert_rows_close(got, logits_whole(program, short), ALL_IN_FLOAT64)


@pytest.mark.parametrize("kv_dtype", ["float32", "int8"])
@pytest.mark.parametrize("activations", ["float", "int8"])
def test_a_copied_block_serves_as_the_original(activations, kv_dtype):
    program = tiny_program(np.random.default_rng(0), quantization=Quantization.Q4_1)
    sequence = np.arange(13)
    results = []
    for copies in ([], [(0, 3), (1, 2)]):
        spec = tiny_kv_spec(dtype=kv_dtype)
        interpreter = ReferenceInterpreter(program, spec, 4, activations=activations)
        all_logits(interpreter, [sequence], np.array([[0, 1]], np.int32), [[Part(0, 12)]])
        interpreter.kv_store.copy_blocks(copies)
        table = np.array([[3, 2] if copies else [0, 1]], np.int32)
        results.append(all_logits(interpreter, [sequence], table, [[Part(12, 1)]])[0])
    np.testing.assert_array_equal(results[0], results[1])


def test_close_gives_the_weights_back_and_may_be_called_again():
    interpreter = ReferenceInterpreter(tiny_program(np.random.default_rng(0)), tiny_kv_spec(), 2)
    all_logits(interpreter, [[1, 2, 3]], np.array([[0]], np.int32), [[Part(0, 3)]])
    assert interpreter._weights
    interpreter.close()
    interpreter.close()
    assert not interpreter._weights
