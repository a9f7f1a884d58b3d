"""`KernelCase`: one op in one size, ready to be timed and compared with the reference."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from octavo.kernels.arrays import FloatArray
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Buffer, Program
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kv.spec import KVCacheSpec

NO_CACHE = KVCacheSpec(block_size=16, num_layers=1, num_kv_heads=1, head_dim=16, dtype="float16")
"""For programs without attention."""
SMALLEST_MAGNITUDE = 1e-2
"""Rows of smaller numbers are compared with this magnitude."""


class KernelOptions(NamedTuple):
    """What native kernels run with."""

    isa: str
    num_threads: int


class PreparedKernel(NamedTuple):
    """An op with its inputs in place."""

    run: Callable[[], object]
    close: Callable[[], None]
    num_bytes: int
    """What one run must read from memory; 0 if its operands fit in a cache."""
    num_operations: int
    """Multiplications and additions of one run."""


class KernelCase(NamedTuple):
    """One row of the table. Preparing takes memory and time, so it is done when the row's turn comes."""

    op: str
    size: str
    """What distinguishes it from the op's other rows."""
    peak: Literal["integer", "float"] | None
    """What its operations are: products of bytes, float32; ``None`` for an op that no peak describes."""
    prepare: Callable[[KernelOptions], PreparedKernel]
    error: Callable[[KernelOptions], float]
    """Largest difference from the reference, over the row's largest magnitude."""
    tolerance: float
    """Most that `error` may be: the order of float32 sums."""


def rows_only_step(num_tokens: int) -> StepInput:
    """One request of so many tokens, no logits."""
    return StepInput(
        token_ids=np.zeros(num_tokens, np.int32),
        positions=np.arange(num_tokens, dtype=np.int32),
        query_start_loc=np.array([0, num_tokens], np.int32),
        seq_lens=np.array([num_tokens], np.int32),
        block_tables=np.zeros((1, num_tokens), np.int32),
        logit_rows=np.empty(0, np.int32),
    )


def make_native(
    program: Program,
    options: KernelOptions,
    *,
    num_tokens: int,
    kv_spec: KVCacheSpec = NO_CACHE,
    num_blocks: int = 1,
) -> NativeInterpreter:
    """The native interpreter of a program of a few ops."""
    return NativeInterpreter(
        program,
        kv_spec,
        num_blocks,
        max_num_tokens=num_tokens,
        max_logit_rows=1,
        num_threads=options.num_threads,
        isa=options.isa,
    )


def program_error(
    program: Program, x: Buffer, out: Buffer, rows: FloatArray, options: KernelOptions
) -> float:
    """Run a program without cache natively and in the reference and compare ``out``.

    Args:
        rows: of the input ``x`` [num_tokens, width].
    """
    native = make_native(program, options, num_tokens=len(rows))
    reference = ReferenceInterpreter(program, NO_CACHE, 1, activations="int8")
    results = []
    for interpreter in (native, reference):
        interpreter.write(x, rows)
        interpreter.run(rows_only_step(len(rows)))
        results.append(interpreter.read(out))
        interpreter.close()
    return largest_error(*results)


def largest_error(got: FloatArray, want: FloatArray) -> float:
    """Largest difference, each over the largest magnitude of its row of ``want`` [num_rows, width]."""
    magnitudes = np.maximum(np.abs(want).max(axis=-1, keepdims=True), SMALLEST_MAGNITUDE)
    return float((np.abs(got.astype(np.float64) - want) / magnitudes).max())
