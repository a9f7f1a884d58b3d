"""A program of a whole small transformer with random weights, and what it computes step by step."""

from collections.abc import Iterable, Sequence

import numpy as np

from harness.steps import Part, make_step
from harness.weights import random_weight, vector_weight
from octavo.kernels.dataflow import keep_logit_rows
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Program, RopeSpec, RopeStyle
from octavo.kernels.weight import Quantization
from octavo.kv.spec import KVCacheSpec

VOCAB_SIZE = 64
NUM_LAYERS = 2
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 4, 2, 16
HIDDEN_SIZE = NUM_HEADS * HEAD_DIM
INTERMEDIATE_SIZE = 96


def tiny_program(
    rng: np.random.Generator,
    *,
    quantization: Quantization = Quantization.F32,
    rope_style: RopeStyle = RopeStyle.HALF_SPLIT,
    window: int | None = None,
    window_layer: int = 0,
) -> Program:
    """Two layers with grouped queries, a gated MLP and a tied head; formats with blocks of 32 fit.

    One of them may have a window.
    """

    def matrix(rows: int, columns: int):
        return random_weight(rng, (rows, columns), quantization)

    rope = RopeSpec(rope_style, HEAD_DIM, tuple(10_000 ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)))
    embedding = random_weight(rng, (VOCAB_SIZE, HIDDEN_SIZE), Quantization.F32)
    kv_width = NUM_KV_HEADS * HEAD_DIM
    p = Program()
    x = p.embed(embedding, scale=8.0)
    for layer in range(NUM_LAYERS):
        h = p.rms_norm(x, vector_weight(rng, HIDDEN_SIZE), eps=1e-5)
        qkv = p.linear(h, *(matrix(rows, HIDDEN_SIZE) for rows in (HIDDEN_SIZE, kv_width, kv_width)))
        q = p.rope_and_write_kv(
            qkv,
            layer=layer,
            num_heads=NUM_HEADS,
            num_kv_heads=NUM_KV_HEADS,
            head_dim=HEAD_DIM,
            rope=rope,
        )
        attention = p.paged_attention(
            q,
            layer=layer,
            num_kv_heads=NUM_KV_HEADS,
            head_dim=HEAD_DIM,
            scale=HEAD_DIM**-0.5,
            window=window if layer == window_layer else None,
        )
        x = p.linear(attention, matrix(HIDDEN_SIZE, HIDDEN_SIZE), add_to=x)
        h = p.rms_norm(x, vector_weight(rng, HIDDEN_SIZE), eps=1e-5)
        gate_up = p.linear(h, *(matrix(INTERMEDIATE_SIZE, HIDDEN_SIZE) for _ in range(2)))
        x = p.linear(p.gated_activation(gate_up), matrix(HIDDEN_SIZE, INTERMEDIATE_SIZE), add_to=x)
    p.logits(p.rms_norm(x, vector_weight(rng, HIDDEN_SIZE), eps=1e-5), embedding)
    keep_logit_rows(p)
    return p


def tiny_kv_spec(*, block_size: int = 8, dtype: str = "float32") -> KVCacheSpec:
    """The cache that `tiny_program` needs."""
    return KVCacheSpec(
        block_size=block_size,
        num_layers=NUM_LAYERS,
        num_kv_heads=NUM_KV_HEADS,
        head_dim=HEAD_DIM,
        dtype=dtype,
    )


def random_chunks(rng: np.random.Generator, num_tokens: Sequence[int]) -> Iterable[list[Part]]:
    """Steps that bring sequences to these lengths; in each, a request computes some tokens or none."""
    totals = np.array(num_tokens)
    computed = np.zeros_like(totals)
    while (computed < totals).any():
        new = rng.integers(0, totals - computed + 1)
        yield [Part(int(done), int(count)) for done, count in zip(computed, new, strict=True)]
        computed = computed + new


def all_logits(
    interpreter: Interpreter,
    sequences: Sequence[np.ndarray],
    block_tables: np.ndarray,
    steps: Iterable[Sequence[Part]],
) -> list[np.ndarray]:
    """The logits of every token of every sequence [num_tokens, vocab_size], computed by these steps."""
    pieces: list[list[np.ndarray]] = [[] for _ in sequences]
    for parts in steps:
        active = [i for i, part in enumerate(parts) if part.num_new_tokens]
        if not active:
            continue
        tokens = [sequences[i][parts[i].num_computed_tokens : parts[i].seq_len] for i in active]
        num_tokens = sum(map(len, tokens))
        step = make_step(
            [parts[i] for i in active],
            block_tables[active],
            token_ids=np.concatenate(tokens),
            logit_rows=range(num_tokens),
        )
        logits = interpreter.run(step).copy()
        ends = np.cumsum([len(piece) for piece in tokens])[:-1]
        for i, piece in zip(active, np.split(logits, ends), strict=True):
            pieces[i].append(piece)
    return [np.concatenate(piece) for piece in pieces]
