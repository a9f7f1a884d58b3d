"""A tiny random model, run by the native kernels and by the reference: do they agree on this machine?"""

import numpy as np
import numpy.typing as npt

from octavo.kernels.interpreter import StepInput
from octavo.kernels.program import Program, RopeSpec, RopeStyle
from octavo.kernels.weight import Quantization, Weight
from octavo.kv.spec import KVCacheSpec
from octavo.runner.kernels import KernelChoice, StepLimits, make_kernels

TOLERANCE = 1e-3
"""Largest difference of two logits that rounding can explain; they are of the order of 1."""

_VOCAB, _WIDTH, _HEADS, _KV_HEADS, _HEAD_DIM, _LAYERS = 64, 64, 4, 2, 16, 2
_NUM_TOKENS, _BLOCK_SIZE, _NUM_BLOCKS = 20, 8, 8


def largest_difference(isa: str) -> float:
    """The largest difference between a native and a reference logit.

    Args:
        isa: instruction set of the native kernels.

    Raises:
        KernelUnavailableError: the native kernels cannot run here.
    """
    native = _logits(KernelChoice("native", isa, num_threads=2))
    reference = _logits(KernelChoice("reference", "numpy", num_threads=1))
    return float(np.abs(native - reference).max())


def _logits(choice: KernelChoice) -> npt.NDArray[np.float32]:
    spec = KVCacheSpec(
        block_size=_BLOCK_SIZE,
        num_layers=_LAYERS,
        num_kv_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        dtype="float32",
    )
    limits = StepLimits(max_num_tokens=_NUM_TOKENS, max_logit_rows=_NUM_TOKENS)
    kernels = make_kernels(choice, _program(), kv_spec=spec, num_blocks=_NUM_BLOCKS, limits=limits)
    interpreter = kernels.interpreter
    try:
        return interpreter.run(_step()).copy()
    finally:
        interpreter.close()


def _step() -> StepInput:
    """One prompt whose blocks lie out of order."""
    return StepInput(
        token_ids=np.arange(_NUM_TOKENS, dtype=np.int32),
        positions=np.arange(_NUM_TOKENS, dtype=np.int32),
        query_start_loc=np.array([0, _NUM_TOKENS], dtype=np.int32),
        seq_lens=np.array([_NUM_TOKENS], dtype=np.int32),
        block_tables=np.array([[5, 2, 7]], dtype=np.int32),
        logit_rows=np.arange(_NUM_TOKENS, dtype=np.int32),
    )


def _program() -> Program:
    """Two layers with every kind of op that a llama has."""
    numbers = np.random.default_rng(7)
    program = Program()
    embedding = _weight(numbers, "embedding", _VOCAB, _WIDTH)
    x = program.embed(embedding)
    for layer in range(_LAYERS):
        h = program.rms_norm(x, _weight(numbers, "norm", _WIDTH), eps=1e-5)
        qkv = program.linear(h, _weight(numbers, "qkv", (_HEADS + 2 * _KV_HEADS) * _HEAD_DIM, _WIDTH))
        q = program.rope_and_write_kv(
            qkv, layer=layer, num_heads=_HEADS, num_kv_heads=_KV_HEADS, head_dim=_HEAD_DIM, rope=_rope()
        )
        attended = program.paged_attention(
            q, layer=layer, num_kv_heads=_KV_HEADS, head_dim=_HEAD_DIM, scale=_HEAD_DIM**-0.5
        )
        x = program.linear(attended, _weight(numbers, "o", _WIDTH, _HEADS * _HEAD_DIM), add_to=x)
        h = program.rms_norm(x, _weight(numbers, "norm", _WIDTH), eps=1e-5)
        gated = program.gated_activation(program.linear(h, _weight(numbers, "gate_up", 2 * _WIDTH, _WIDTH)))
        x = program.linear(gated, _weight(numbers, "down", _WIDTH, _WIDTH), add_to=x)
    program.logits(program.rms_norm(x, _weight(numbers, "norm", _WIDTH), eps=1e-5), embedding)
    return program


def _rope() -> RopeSpec:
    frequencies = tuple(10_000.0 ** (-2 * i / _HEAD_DIM) for i in range(_HEAD_DIM // 2))
    return RopeSpec(RopeStyle.INTERLEAVED, _HEAD_DIM, frequencies)


def _weight(numbers: np.random.Generator, name: str, *shape: int) -> Weight:
    values = numbers.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)
    return Weight(name, shape, Quantization.F32, values.reshape(-1).view(np.uint8))
