"""Paged attention: decoding over caches larger than the processor's, and prefill behind a long context."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from octavo.bench.kernel_case import KernelCase, KernelOptions, PreparedKernel, largest_error, make_native
from octavo.bench.limits import run_seconds
from octavo.bench.spread import Spread
from octavo.kernels.arrays import FloatArray
from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Buffer, Program
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kv.spec import KVCacheSpec, KVDtype

BLOCK_SIZE = 16
TOLERANCE = 2e-5
INT8_TOLERANCE = 3e-2  # weights are integers of 8 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSize:
    """Requests that are equally far."""

    num_requests: int
    context: int
    """Tokens in the cache, those of the step included."""
    num_new_tokens: int = 1
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int = 1
    is_shuffled: bool = True
    """Blocks lie in random order, else one after another."""
    kv_dtype: KVDtype = "float16"

    @property
    def title(self) -> str:
        """For the table."""
        new = "" if self.num_new_tokens == 1 else f"{self.num_new_tokens} new of "
        layers = "" if self.num_layers == 1 else f", {self.num_layers} layers"
        heads = f"{self.num_heads}/{self.num_kv_heads} heads × {self.head_dim}"
        dtype = "" if self.kv_dtype == "float16" else f", {self.kv_dtype}"
        return f"{self.num_requests} × {new}{self.context:,}, {heads}{layers}{dtype}"

    @property
    def num_tokens(self) -> int:
        """Rows of the step."""
        return self.num_requests * self.num_new_tokens

    @property
    def num_blocks(self) -> int:
        """Of all requests together."""
        return self.num_requests * -(-self.context // BLOCK_SIZE)

    @property
    def kv_spec(self) -> KVCacheSpec:
        """The cache."""
        return KVCacheSpec(
            block_size=BLOCK_SIZE,
            num_layers=self.num_layers,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.kv_dtype,
        )

    @property
    def num_bytes(self) -> int:
        """K and V of every request, in all layers."""
        return self.num_requests * self.context * self.kv_spec.bytes_per_token

    @property
    def num_operations(self) -> int:
        """Of the scores and of the weighted sums; softmax left out."""
        past = self.context - self.num_new_tokens
        pairs = self.num_new_tokens * (2 * past + self.num_new_tokens + 1) // 2
        return 4 * self.num_layers * self.num_requests * self.num_heads * self.head_dim * pairs


_FLOAT16_DECODE = (
    AttentionSize(num_requests=32, context=2048, num_heads=9, num_kv_heads=3, head_dim=64, num_layers=4),
    AttentionSize(num_requests=1, context=8192, num_heads=9, num_kv_heads=3, head_dim=64, num_layers=30),
    AttentionSize(num_requests=8, context=2048, num_heads=32, num_kv_heads=8, head_dim=64, num_layers=4),
    AttentionSize(num_requests=8, context=2048, num_heads=32, num_kv_heads=8, head_dim=128, num_layers=4),
    AttentionSize(num_requests=8, context=2048, num_heads=4, num_kv_heads=1, head_dim=256, num_layers=8),
)
# Twice the layers, so that no cache holds their K and V either.
DECODE_SIZES = _FLOAT16_DECODE + tuple(
    replace(size, kv_dtype="int8", num_layers=2 * size.num_layers) for size in _FLOAT16_DECODE
)
PREFILL_SIZES = tuple(
    AttentionSize(
        num_requests=1,
        context=context,
        num_new_tokens=512,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        kv_dtype=kv_dtype,
    )
    for kv_dtype in ("float16", "int8")
    for context, num_heads, num_kv_heads, head_dim in (
        (512, 9, 3, 64),
        (2560, 9, 3, 64),
        (2560, 32, 8, 128),
        (2560, 4, 1, 256),
    )
)
SHUFFLED_SIZES = (DECODE_SIZES[0], DECODE_SIZES[len(_FLOAT16_DECODE)])


def attention_cases() -> Iterator[KernelCase]:
    """Decoding, then prefill."""
    for size in (*DECODE_SIZES, *PREFILL_SIZES):
        yield KernelCase(
            op="attention decode" if size.num_new_tokens == 1 else "attention prefill",
            size=size.title,
            peak="integer" if size.kv_dtype == "int8" else "float",
            prepare=partial(_prepare, size),
            error=partial(_error, _small(size)),
            tolerance=INT8_TOLERANCE if size.kv_dtype == "int8" else TOLERANCE,
        )


def _small(size: AttentionSize) -> AttentionSize:
    """The same kernels on a size that the reference computes in a moment."""
    num_new_tokens = min(size.num_new_tokens, 40)
    return replace(
        size,
        num_requests=min(size.num_requests, 2),
        context=min(size.context, 300),
        num_new_tokens=num_new_tokens,
        num_layers=1,
    )


def _prepare(size: AttentionSize, options: KernelOptions) -> PreparedKernel:
    program, q, _ = _program(size)
    interpreter = make_native(
        program, options, num_tokens=size.num_tokens, kv_spec=size.kv_spec, num_blocks=size.num_blocks
    )
    _fill(interpreter, size)
    step = _step(size)
    interpreter.write(q, _queries(size))
    return PreparedKernel(
        run=lambda: interpreter.run(step),
        close=interpreter.close,
        num_bytes=size.num_bytes,
        num_operations=size.num_operations,
    )


def _program(size: AttentionSize) -> tuple[Program, Buffer, Buffer]:
    """Attention alone, with its queries and the last layer's result."""
    program = Program()
    out = q = program.input(size.num_heads * size.head_dim)
    for layer in range(size.num_layers):
        out = program.paged_attention(
            q, layer=layer, num_kv_heads=size.num_kv_heads, head_dim=size.head_dim, scale=size.head_dim**-0.5
        )
    return program, q, out


def _queries(size: AttentionSize) -> FloatArray:
    shape = (size.num_tokens, size.num_heads * size.head_dim)
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _fill(interpreter: NativeInterpreter | ReferenceInterpreter, size: AttentionSize) -> None:
    """Write K and V, the same few blocks over and over."""
    shape = (4, 2, BLOCK_SIZE, size.num_kv_heads, size.head_dim)
    contents = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for layer in range(size.num_layers):
        for block_id in range(size.num_blocks):
            interpreter.kv_store.write_block(layer, block_id, contents[(layer + block_id) % 4])


def _step(size: AttentionSize) -> StepInput:
    """All requests, equally far, their blocks in the order that the size asks for."""
    order = np.arange(size.num_blocks)
    if size.is_shuffled:
        order = np.random.default_rng(0).permutation(order)
    positions = np.arange(size.context - size.num_new_tokens, size.context, dtype=np.int32)
    return StepInput(
        token_ids=np.zeros(size.num_tokens, np.int32),
        positions=np.tile(positions, size.num_requests),
        query_start_loc=np.arange(0, size.num_tokens + 1, size.num_new_tokens, dtype=np.int32),
        seq_lens=np.full(size.num_requests, size.context, np.int32),
        block_tables=np.ascontiguousarray(order.reshape(size.num_requests, -1), dtype=np.int32),
        logit_rows=np.empty(0, np.int32),
    )


def shuffled_over_in_order(
    options: KernelOptions, *, size: AttentionSize = DECODE_SIZES[0], num_pairs: int = 15
) -> Spread:
    """Time with blocks in random order over time with blocks in order: ratios of neighbouring runs."""
    program, q, _ = _program(size)
    interpreter = make_native(
        program, options, num_tokens=size.num_tokens, kv_spec=size.kv_spec, num_blocks=size.num_blocks
    )
    _fill(interpreter, size)
    interpreter.write(q, _queries(size))
    steps = [_step(replace(size, is_shuffled=is_shuffled)) for is_shuffled in (True, False)]
    ratios = []
    for _ in range(num_pairs):
        shuffled, in_order = (run_seconds(partial(interpreter.run, step)) for step in steps)
        ratios.append(shuffled / in_order)
    interpreter.close()
    return Spread.of(ratios)


def _error(size: AttentionSize, options: KernelOptions) -> float:
    program, q, out = _program(size)
    native = make_native(
        program, options, num_tokens=size.num_tokens, kv_spec=size.kv_spec, num_blocks=size.num_blocks
    )
    reference = ReferenceInterpreter(program, size.kv_spec, size.num_blocks)
    results = []
    for interpreter in (native, reference):
        _fill(interpreter, size)
        interpreter.write(q, _queries(size))
        interpreter.run(_step(size))
        results.append(interpreter.read(out))
        interpreter.close()
    return largest_error(*results)
