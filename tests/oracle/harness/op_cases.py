"""Programs of one op with everything that it reads, to be run on any interpreter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.steps import Part, blocks_needed, make_step, rows_only_step, shuffled_block_tables
from harness.weights import random_weight, vector_weight
from octavo.kernels.adapter import Adapter
from octavo.kernels.interpreter import StepInput
from octavo.kernels.program import Activation, Buffer, HeadNorms, Program, RopeSpec
from octavo.kernels.weight import Quantization
from octavo.kv.spec import KVCacheSpec

NO_CACHE = KVCacheSpec(block_size=16, num_layers=1, num_kv_heads=1, head_dim=16, dtype="float32")


@dataclass(frozen=True, kw_only=True)
class OpCase:
    """One op, its input rows, and the cache before it."""

    op: str
    """Its key in `tolerances.TOLERANCES`."""
    program: Program
    step: StepInput
    inputs: Sequence[tuple[Buffer, np.ndarray]] = ()
    output: Buffer | None = None
    """The buffer to compare; ``None``: the logits."""
    kv_spec: KVCacheSpec = NO_CACHE
    num_blocks: int = 1
    adapters: Mapping[int, Adapter] = field(default_factory=dict)
    """By slot."""
    kv_blocks: np.ndarray | None = None
    """[num_layers, num_blocks, 2, block_size, num_kv_heads, head_dim], written before the run."""


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """Heads of an attention layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


def embed_case(
    rng: np.random.Generator,
    *,
    quantization: Quantization = Quantization.F32,
    vocab_size: int = 40,
    width: int = 256,
    num_tokens: int = 5,
    scale: float = 1.0,
) -> OpCase:
    """Rows of a table of any quantisation."""
    program = Program()
    output = program.embed(random_weight(rng, (vocab_size, width), quantization), scale=scale)
    token_ids = rng.integers(0, vocab_size, num_tokens)
    step = make_step([Part(0, num_tokens)], np.zeros((1, num_tokens)), token_ids=token_ids, logit_rows=())
    return OpCase(op="embed", program=program, step=step, output=output)


def rms_norm_case(
    rng: np.random.Generator,
    *,
    width: int = 64,
    num_tokens: int = 5,
    eps: float = 1e-5,
    accumulate: bool = False,
) -> OpCase:
    """Rows of different sizes."""
    program = Program()
    x = program.input(width)
    rows = random_rows(rng, num_tokens, width) * 10.0 ** rng.integers(-3, 3, (num_tokens, 1))
    inputs = [(x, rows)]
    if accumulate:  # to numbers so large that the sum does not cancel
        inputs.append((program.input(width), rng.uniform(6, 9, (num_tokens, width)).astype(np.float32)))
    output = program.rms_norm(
        x, vector_weight(rng, width), eps=eps, add_to=inputs[1][0] if accumulate else None
    )
    return OpCase(
        op="rms_norm", program=program, step=rows_only_step(num_tokens), inputs=inputs, output=output
    )


def linear_case(
    rng: np.random.Generator,
    *,
    quantizations: Sequence[Quantization] = (Quantization.F32,),
    rows_per_part: int = 24,
    columns: int = 256,
    num_tokens: int = 5,
    bias: bool = False,
    accumulate: bool = False,
) -> OpCase:
    """One part per quantisation, side by side."""
    program = Program()
    x = program.input(columns)
    width = rows_per_part * len(quantizations)
    inputs = [(x, random_rows(rng, num_tokens, columns))]
    if accumulate:
        inputs.append((program.input(width), random_rows(rng, num_tokens, width)))
    output = program.linear(
        x,
        *(random_weight(rng, (rows_per_part, columns), part) for part in quantizations),
        bias=vector_weight(rng, width, name="bias") if bias else None,
        add_to=inputs[1][0] if accumulate else None,
    )
    return OpCase(op="linear", program=program, step=rows_only_step(num_tokens), inputs=inputs, output=output)


def rope_case(
    rng: np.random.Generator,
    *,
    parts: Sequence[Part],
    heads: HeadShape,
    rope: RopeSpec,
    block_size: int = 16,
    kv_dtype: str = "float32",
    normed: bool = False,
) -> OpCase:
    """Queries rotated; K and V written over a cache full of numbers that must stay."""
    program = Program()
    width = (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim
    qkv = program.input(width)
    output = program.rope_and_write_kv(
        qkv,
        layer=1,
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        rope=rope,
        norms=head_norms(rng, heads.head_dim) if normed else None,
    )
    kv_spec = _kv_spec(heads, block_size, kv_dtype)
    num_blocks, step = _step_in_cache(rng, parts, block_size)
    return OpCase(
        op="rope",
        program=program,
        step=step,
        inputs=[(qkv, random_rows(rng, len(step.positions), width))],
        output=output,
        kv_spec=kv_spec,
        num_blocks=num_blocks,
        kv_blocks=_random_blocks(rng, kv_spec, num_blocks),
    )


def attention_case(
    rng: np.random.Generator,
    *,
    parts: Sequence[Part],
    heads: HeadShape,
    block_size: int = 16,
    kv_dtype: str = "float32",
    window: int | None = None,
    soft_cap: float | None = None,
) -> OpCase:
    """Queries over a cache in which every slot that no row may see is NaN."""
    program = Program()
    width = heads.num_heads * heads.head_dim
    queries = program.input(width)
    output = program.paged_attention(
        queries,
        layer=1,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        scale=heads.head_dim**-0.5,
        window=window,
        soft_cap=soft_cap,
    )
    kv_spec = _kv_spec(heads, block_size, kv_dtype)
    num_blocks, step = _step_in_cache(rng, parts, block_size)
    blocks = _random_blocks(rng, kv_spec, num_blocks)
    return OpCase(
        op="attention_int8" if kv_dtype == "int8" else "attention_capped" if soft_cap else "attention",
        program=program,
        step=step,
        inputs=[(queries, 3 * random_rows(rng, len(step.positions), width))],
        output=output,
        kv_spec=kv_spec,
        num_blocks=num_blocks,
        kv_blocks=np.where(_visible_slots(step, parts, kv_spec, num_blocks, window), blocks, np.nan),
    )


def gated_activation_case(
    rng: np.random.Generator,
    *,
    width: int = 64,
    num_tokens: int = 5,
    activation: Activation = Activation.SILU,
) -> OpCase:
    """Gates from deep saturation on one side to the other."""
    program = Program()
    gate_up = program.input(2 * width)
    output = program.gated_activation(gate_up, activation=activation)
    return OpCase(
        op="gated_activation",
        program=program,
        step=rows_only_step(num_tokens),
        inputs=[(gate_up, 6 * random_rows(rng, num_tokens, 2 * width))],
        output=output,
    )


def logits_case(
    rng: np.random.Generator,
    *,
    quantization: Quantization = Quantization.F32,
    vocab_size: int = 48,
    columns: int = 256,
    num_tokens: int = 5,
    logit_rows: Sequence[int] = (4, 0, 2),
    soft_cap: float | None = None,
) -> OpCase:
    """Some rows through the head, in any order."""
    program = Program()
    x = program.input(columns)
    program.logits(x, random_weight(rng, (vocab_size, columns), quantization), soft_cap=soft_cap)
    return OpCase(
        op="logits",
        program=program,
        step=rows_only_step(num_tokens, logit_rows=logit_rows),
        inputs=[(x, random_rows(rng, num_tokens, columns))],
    )


def head_norms(rng: np.random.Generator, head_dim: int) -> HeadNorms:
    """Norms of queries and keys that differ."""
    return HeadNorms(vector_weight(rng, head_dim), vector_weight(rng, head_dim), eps=1e-5)


def random_rows(rng: np.random.Generator, num_tokens: int, width: int) -> np.ndarray:
    """Activations of size 1, float32."""
    return rng.normal(0, 1, (num_tokens, width)).astype(np.float32)


def _kv_spec(heads: HeadShape, block_size: int, kv_dtype: str) -> KVCacheSpec:
    return KVCacheSpec(
        block_size=block_size,
        num_layers=2,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        dtype=kv_dtype,
    )


def _step_in_cache(rng: np.random.Generator, parts: Sequence[Part], block_size: int) -> tuple[int, StepInput]:
    num_blocks = blocks_needed(parts, block_size) + 3
    seq_lens = [part.seq_len for part in parts]
    tables = shuffled_block_tables(rng, seq_lens, block_size=block_size, num_blocks=num_blocks)
    return num_blocks, make_step(parts, tables, logit_rows=())


def _random_blocks(rng: np.random.Generator, spec: KVCacheSpec, num_blocks: int) -> np.ndarray:
    shape = (spec.num_layers, num_blocks, 2, spec.block_size, spec.num_kv_heads, spec.head_dim)
    return rng.normal(0, 1, shape).astype(view_dtype(spec.dtype))


def view_dtype(kv_dtype: str) -> str:
    """Number format in which a store of this format takes and gives blocks."""
    return "float32" if kv_dtype == "int8" else kv_dtype


def _visible_slots(
    step: StepInput, parts: Sequence[Part], spec: KVCacheSpec, num_blocks: int, window: int | None
) -> np.ndarray:
    """Slots that some row sees [1, num_blocks, 1, block_size, 1, 1]."""
    visible = np.zeros((num_blocks, spec.block_size), np.bool_)
    for part, table in zip(parts, step.block_tables, strict=True):
        first = 0 if window is None else max(0, part.num_computed_tokens - window + 1)
        positions = np.arange(first, part.seq_len)
        visible[table[positions // spec.block_size], positions % spec.block_size] = True
    return visible[None, :, None, :, None, None]
