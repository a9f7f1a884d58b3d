"""Linear layers, in the formats that model files have, from one row to a full prefill step."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from octavo.bench.kernel_case import (
    KernelCase,
    KernelOptions,
    PreparedKernel,
    make_native,
    program_error,
    rows_only_step,
)
from octavo.bench.machine import last_level_cache
from octavo.kernels.activation_quantization import INTEGER_QUANTIZATIONS
from octavo.kernels.interpreter import FloatArray
from octavo.kernels.program import Program
from octavo.kernels.quantization import bytes_per_row
from octavo.kernels.weight import Quantization, Weight

SHAPES = ((3072, 576), (2048, 8192))
"""Outputs by inputs: a gated MLP of SmolLM2-135M, and a matrix of a model of billions."""
ROW_COUNTS = (1, 4, 32, 512)
MAX_OPERATIONS = 4_000_000_000
"""Of one run."""
TOLERANCE = 2e-5


def linear_cases(
    formats: Sequence[Quantization], row_counts: Sequence[int] = ROW_COUNTS
) -> Iterator[KernelCase]:
    """Every format in every shape with every number of rows."""
    for quantization, shape, num_rows in itertools.product(formats, SHAPES, row_counts):
        yield _case(quantization, shape, num_rows)


def random_weight(shape: tuple[int, int], quantization: Quantization) -> Weight:
    """A weight of random bytes, small ones: every float16 and bfloat16 among them is a finite number."""
    num_bytes = shape[0] * bytes_per_row(quantization, shape[1])
    raw = np.random.default_rng(0).integers(0, 64, num_bytes, dtype=np.uint8)
    return Weight("weight", shape, quantization, raw)


def _case(quantization: Quantization, shape: tuple[int, int], num_rows: int) -> KernelCase:
    num_outputs, num_inputs = shape
    rows_word = "row" if num_rows == 1 else "rows"
    return KernelCase(
        op=f"linear {quantization}",
        size=f"{num_outputs} × {num_inputs}, {num_rows} {rows_word}",
        peak="integer" if quantization in INTEGER_QUANTIZATIONS else "float",
        prepare=partial(_prepare, shape, quantization, num_rows),
        error=partial(_error, shape, quantization, num_rows),
        tolerance=TOLERANCE,
    )


def _prepare(
    shape: tuple[int, int], quantization: Quantization, num_rows: int, options: KernelOptions
) -> PreparedKernel:
    """Enough copies of the weight that none stays in a cache, fewer where that would take long."""
    weight = random_weight(shape, quantization)
    operations = 2 * num_rows * weight.shape[0] * weight.shape[1]
    out_of_cache = -(-4 * last_level_cache() // weight.raw.nbytes)
    copies = max(1, min(out_of_cache, MAX_OPERATIONS // operations))
    program = Program()
    x = program.input(weight.shape[1])
    for _ in range(copies):
        program.linear(x, Weight("copy", weight.shape, weight.quantization, weight.raw))
    interpreter = make_native(program, options, num_tokens=num_rows)
    interpreter.write(x, _rows(num_rows, weight))
    step = rows_only_step(num_rows)
    return PreparedKernel(
        run=lambda: interpreter.run(step),
        close=interpreter.close,
        num_bytes=interpreter.weight_bytes if copies == out_of_cache else 0,
        num_operations=copies * operations,
    )


def _error(
    shape: tuple[int, int], quantization: Quantization, num_rows: int, options: KernelOptions
) -> float:
    weight = random_weight(shape, quantization)
    program = Program()
    x = program.input(weight.shape[1])
    out = program.linear(x, weight)
    return program_error(program, x, out, _rows(min(num_rows, 64), weight), options)


def _rows(num_rows: int, weight: Weight) -> FloatArray:
    return np.random.default_rng(1).normal(size=(num_rows, weight.shape[1])).astype(np.float32)
