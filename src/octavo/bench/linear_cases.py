"""Linear layers, in the formats that model files have, from one row to a full prefill step."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

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
from octavo.kernels.arrays import FloatArray
from octavo.kernels.program import Program
from octavo.kernels.quantization import bytes_per_row
from octavo.kernels.weight import Quantization, Weight

SHAPES = ((3072, 576), (2048, 8192))
"""Outputs by inputs: a gated MLP of SmolLM2-135M, and a matrix of a model of billions."""
ROW_COUNTS = (1, 4, 32, 512)
CACHED_SHAPE = (1024, 512)
CACHED_ROW_COUNTS = (32, 128)
CACHED_USES = 32
"""A matrix that stays in the innermost caches with its rows, used again and again: the kernel by itself."""
MAX_OPERATIONS = 4_000_000_000
"""Of one run."""
TOLERANCE = 2e-5


class LinearSize(NamedTuple):
    """A matrix, and how many rows it is multiplied with."""

    quantization: Quantization
    shape: tuple[int, int]
    num_rows: int
    is_cached: bool = False

    @property
    def num_operations(self) -> int:
        """Of one product."""
        return 2 * self.num_rows * self.shape[0] * self.shape[1]


def linear_cases(
    formats: Sequence[Quantization], row_counts: Sequence[int] = ROW_COUNTS
) -> Iterator[KernelCase]:
    """Every format in every shape with every number of rows, then from the innermost caches."""
    for quantization, shape, num_rows in itertools.product(formats, SHAPES, row_counts):
        yield _case(LinearSize(quantization, shape, num_rows))
    for quantization, num_rows in itertools.product(formats, CACHED_ROW_COUNTS):
        yield _case(LinearSize(quantization, CACHED_SHAPE, num_rows, is_cached=True))


def random_weight(shape: tuple[int, int], quantization: Quantization) -> Weight:
    """A weight of random bytes, small ones: every float16 and bfloat16 among them is a finite number."""
    num_bytes = shape[0] * bytes_per_row(quantization, shape[1])
    raw = np.random.default_rng(0).integers(0, 64, num_bytes, dtype=np.uint8)
    return Weight("weight", shape, quantization, raw)


def _case(size: LinearSize) -> KernelCase:
    num_outputs, num_inputs = size.shape
    rows_word = "row" if size.num_rows == 1 else "rows"
    place = " from the cache" if size.is_cached else ""
    return KernelCase(
        op=f"linear {size.quantization}",
        size=f"{num_outputs} × {num_inputs}{place}, {size.num_rows} {rows_word}",
        peak="integer" if size.quantization in INTEGER_QUANTIZATIONS else "float",
        prepare=partial(_prepare, size),
        error=partial(_error, size),
        tolerance=TOLERANCE,
    )


def _prepare(size: LinearSize, options: KernelOptions) -> PreparedKernel:
    weights = _weights(size)
    program = Program()
    x = program.input(size.shape[1])
    out = None
    for weight in weights:
        out = program.linear(x, weight, add_to=out if size.is_cached else None)
    interpreter = make_native(program, options, num_tokens=size.num_rows)
    interpreter.write(x, _rows(size.num_rows, weights[0]))
    step = rows_only_step(size.num_rows)
    exceeds_caches = interpreter.weight_bytes >= 4 * last_level_cache()
    return PreparedKernel(
        run=lambda: interpreter.run(step),
        close=interpreter.close,
        num_bytes=interpreter.weight_bytes if exceeds_caches else 0,
        num_operations=len(weights) * size.num_operations,
    )


def _weights(size: LinearSize) -> list[Weight]:
    """One matrix again and again, or so many copies that none stays in a cache, fewer if that takes long."""
    weight = random_weight(size.shape, size.quantization)
    if size.is_cached:
        return [weight] * CACHED_USES
    out_of_cache = 1 + 4 * last_level_cache() // weight.raw.nbytes
    copies = max(1, min(out_of_cache, MAX_OPERATIONS // size.num_operations))
    return [Weight("copy", weight.shape, weight.quantization, weight.raw) for _ in range(copies)]


def _error(size: LinearSize, options: KernelOptions) -> float:
    weight = random_weight(size.shape, size.quantization)
    program = Program()
    x = program.input(size.shape[1])
    out = program.linear(x, weight)
    return program_error(program, x, out, _rows(min(size.num_rows, 64), weight), options)


def _rows(num_rows: int, weight: Weight) -> FloatArray:
    return np.random.default_rng(1).normal(size=(num_rows, weight.shape[1])).astype(np.float32)
