"""Ops that work row by row: normalisation and sampling. Operands stay in a cache, so no limit is set."""

from collections.abc import Iterator
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
from octavo.kernels.arrays import FloatArray
from octavo.kernels.native_library import load_library
from octavo.kernels.native_pool import NativePool
from octavo.kernels.native_sampler import NativeSampler
from octavo.kernels.program import Buffer, Program
from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.kernels.sampling import SamplingInput, allowed_words
from octavo.kernels.select import choose_isa
from octavo.kernels.weight import Quantization, Weight

NORM_SIZES = ((32, 576), (512, 576), (512, 4096))
"""Rows by width."""
SAMPLING_ROWS = 32
VOCAB_SIZE = 49_152
NORM_TOLERANCE = 4e-6
SAMPLED_TOKENS_DIFFER = 0.0
"""Sampling either chooses the reference's tokens or is wrong."""


def row_cases() -> Iterator[KernelCase]:
    """Normalisation, then sampling."""
    for num_rows, width in NORM_SIZES:
        yield KernelCase(
            op="rms norm",
            size=f"{num_rows} rows × {width:,}",
            peak=None,
            prepare=partial(_prepare_norm, (num_rows, width)),
            error=partial(_norm_error, (num_rows, width)),
            tolerance=NORM_TOLERANCE,
        )
    for name, settings in _SAMPLING.items():
        yield KernelCase(
            op=f"sample {name}",
            size=f"{SAMPLING_ROWS} rows × {VOCAB_SIZE:,}",
            peak=None,
            prepare=partial(_prepare_sampling, settings),
            error=partial(_sampling_error, settings),
            tolerance=SAMPLED_TOKENS_DIFFER,
        )


_SAMPLING: dict[str, dict[str, float]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "top-k 40": {"temperature": 0.8, "top_k": 40},
    "top-p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "min-p 0.05": {"temperature": 0.8, "min_p": 0.05},
    "greedy, 5 logprobs": {"num_top_logprobs": 5},
}


def _norm_program(width: int) -> tuple[Program, Buffer, Buffer]:
    program = Program()
    x = program.input(width)
    raw = np.random.default_rng(0).normal(1, 0.3, width).astype(np.float32).view(np.uint8)
    out = program.rms_norm(x, Weight("norm", (width,), Quantization.F32, raw), eps=1e-5)
    return program, x, out


def _norm_rows(shape: tuple[int, int]) -> FloatArray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _prepare_norm(shape: tuple[int, int], options: KernelOptions) -> PreparedKernel:
    num_rows, width = shape
    program, x, _ = _norm_program(width)
    interpreter = make_native(program, options, num_tokens=num_rows)
    interpreter.write(x, _norm_rows(shape))
    step = rows_only_step(num_rows)
    return PreparedKernel(lambda: interpreter.run(step), interpreter.close, 0, 4 * num_rows * width)


def _norm_error(shape: tuple[int, int], options: KernelOptions) -> float:
    program, x, out = _norm_program(shape[1])
    return program_error(program, x, out, _norm_rows(shape), options)


def sampling_input(num_rows: int, settings: dict[str, float]) -> SamplingInput:
    """The same settings for every row; the fields that are not named say greedy, no penalties."""
    nothing = np.zeros(num_rows + 1, np.int32)
    return SamplingInput(
        temperature=np.full(num_rows, settings.get("temperature", 0.0), np.float32),
        top_k=np.full(num_rows, settings.get("top_k", 0), np.int32),
        top_p=np.full(num_rows, settings.get("top_p", 1.0), np.float32),
        min_p=np.full(num_rows, settings.get("min_p", 0.0), np.float32),
        seeds=np.arange(num_rows, dtype=np.uint64),
        choice_indices=np.zeros(num_rows, np.int32),
        positions=np.full(num_rows, 100, np.int32),
        repetition_penalty=np.ones(num_rows, np.float32),
        frequency_penalty=np.zeros(num_rows, np.float32),
        presence_penalty=np.zeros(num_rows, np.float32),
        penalty_rows=np.full(num_rows, -1, np.int32),
        output_counts=np.zeros((0, VOCAB_SIZE), np.int32),
        prompt_tokens=np.zeros((0, VOCAB_SIZE), np.uint8),
        bias_starts=nothing,
        bias_token_ids=np.empty(0, np.int32),
        bias_values=np.empty(0, np.float32),
        banned_starts=nothing,
        banned_token_ids=np.empty(0, np.int32),
        allowed_rows=np.full(num_rows, -1, np.int32),
        allowed_tokens=np.empty((0, allowed_words(VOCAB_SIZE)), np.uint32),
        num_top_logprobs=int(settings.get("num_top_logprobs", 0)),
    )


def _logits() -> FloatArray:
    shape = (SAMPLING_ROWS, VOCAB_SIZE)
    return np.random.default_rng(2).normal(0, 2.5, size=shape).astype(np.float32)


def _prepare_sampling(settings: dict[str, float], options: KernelOptions) -> PreparedKernel:
    library = load_library()
    pool = NativePool(options.num_threads, library=library)
    sampler = NativeSampler(library=library, pool=pool, isa=choose_isa(options.isa))
    logits, chosen = _logits(), sampling_input(SAMPLING_ROWS, settings)
    return PreparedKernel(lambda: sampler.sample(logits, chosen), pool.close, 0, logits.size)


def _sampling_error(settings: dict[str, float], options: KernelOptions) -> float:
    """Share of rows whose token is not the reference's."""
    library = load_library()
    pool = NativePool(options.num_threads, library=library)
    sampler = NativeSampler(library=library, pool=pool, isa=choose_isa(options.isa))
    logits, chosen = _logits(), sampling_input(SAMPLING_ROWS, settings)
    got = sampler.sample(logits, chosen).token_ids
    pool.close()
    return float((got != ReferenceSampler().sample(logits, chosen).token_ids).mean())
