"""`ReferenceInterpreter`: what a `Program` means, in numpy. Obvious and slow; it is the specification.

Every other interpreter is tested against this one. Products of matrices are numpy's, so a row's last bits
depend on the batch: native code is compared with it by tolerance, and with itself by bits.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError
from octavo.kernels.activation_quantization import (
    INTEGER_QUANTIZATIONS,
    dequantize_activations,
    quantize_activations,
)
from octavo.kernels.adapter import NO_ADAPTER, Adapter
from octavo.kernels.arrays import IntArray
from octavo.kernels.interpreter import SampledStep, StepInput
from octavo.kernels.logit_rows import fewer_rows
from octavo.kernels.program import (
    Buffer,
    Embed,
    GatedActivation,
    Input,
    KeepLogitRows,
    Linear,
    Logits,
    MixtureOfExperts,
    Op,
    PagedAttention,
    Program,
    RmsNorm,
    RopeAndWriteKV,
)
from octavo.kernels.quantization import dequantize, dequantize_rows
from octavo.kernels.reference_attention import (
    ContiguousSequences,
    PagedSequences,
    Sequences,
    attend,
)
from octavo.kernels.reference_experts import mix_experts
from octavo.kernels.reference_kv import ReferenceKVStore, SequenceKV
from octavo.kernels.reference_ops import gated_activation, rms_norm, soft_cap
from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.kernels.rope import rope_tables_at, rotate
from octavo.kernels.sampling import SamplingInput
from octavo.kernels.weight import Weight
from octavo.kv.spec import KVCacheSpec

Array = npt.NDArray[Any]


class ReferenceInterpreter:
    """Implements `Interpreter` op by op. Each buffer has its own storage, so all can be read after a run.

    Args:
        program: the ops.
        kv_spec: shape of the cache.
        num_blocks: usable blocks of the cache.
        dtype: of all arithmetic and results; float64 shows what is rounding. It is also the cache's dtype
            where ``kv_spec`` says float32; a float16 or int8 cache stays one.
        attention: "contiguous" keeps K/V outside the blocks, and ``kv_store`` unused; for tests
            (`ContiguousSequences` says which requests it can tell apart).
        activations: "int8" quantises the input of every product with a quantised weight, as native does.
    """

    def __init__(
        self,
        program: Program,
        kv_spec: KVCacheSpec,
        num_blocks: int,
        *,
        dtype: type[np.float32] | type[np.float64] = np.float32,
        attention: Literal["paged", "contiguous"] = "paged",
        activations: Literal["float", "int8"] = "float",
    ) -> None:
        self.kv_store = ReferenceKVStore(kv_spec, num_blocks, dtype=dtype)
        self.sampler = ReferenceSampler()
        self._program = program
        self._dtype: npt.DTypeLike = dtype
        self._sequences: Sequences = (
            PagedSequences(self.kv_store)
            if attention == "paged"
            else ContiguousSequences(kv_spec.dtype, dtype)
        )
        self._quantizes_activations = activations == "int8"
        self._buffers: dict[Buffer, Array] = {}
        self._weights: dict[Weight, Array] = {}
        self._adapters: dict[int, Adapter] = {}
        self._has_all_rows = False

    def run(self, step: StepInput) -> Array:
        """Run every op; logits [num_logit_rows, vocab_size] in this interpreter's dtype."""
        self._has_all_rows = False
        fewer = fewer_rows(step)
        remaining = step
        with np.errstate(over="ignore", invalid="ignore"):  # a NaN of one row is that row's own affair
            for op in self._program.ops:
                if not isinstance(op, KeepLogitRows):
                    self._run_op(op, remaining)
                elif fewer is not None:
                    self._buffers[op.out] = self._buffers[op.out][step.logit_rows]
                    remaining = fewer
            logits = self._logits(remaining.logit_rows)
        self._has_all_rows = remaining is step
        return logits

    def run_and_sample(self, step: StepInput, sampling_input: SamplingInput) -> SampledStep:
        """`run`, and a token for each of its logit rows; everything stays until the next step."""
        logits = self.run(step)
        return SampledStep(self.sampler.sample(logits, sampling_input), logits)

    def logits(self, rows: IntArray) -> Array:
        """The head for some rows of the step that ran last; `EngineError` if it kept the logit rows only."""
        if not self._has_all_rows:
            raise EngineError("the last step kept nothing but its logit rows: there are no other logits")
        return self._logits(rows)

    def _logits(self, rows: IntArray) -> Array:
        head = self._program.head
        if head is None:
            return np.empty((0, 0), self._dtype)
        return soft_cap(self._product(self._buffers[head.x][rows], head.weight), head.soft_cap)

    def set_adapter(self, slot: int, adapter: Adapter | None) -> None:
        """Put an adapter in a slot that steps may name, or empty the slot."""
        if adapter is None:
            self._adapters.pop(slot, None)
        else:
            self._adapters[slot] = adapter

    def read(self, buffer: Buffer) -> Array:
        """A copy of a buffer's rows [num_tokens, width]."""
        return self._buffers[buffer].copy()

    def write(self, buffer: Buffer, rows: Array) -> None:
        """Fill an `Input` buffer [num_tokens, width]."""
        self._buffers[buffer] = rows.astype(self._dtype)

    def close(self) -> None:
        """Forget the dequantised weights."""
        self._weights.clear()

    def _run_op(self, op: Op, step: StepInput) -> None:
        buffers = self._buffers
        match op:
            case Input() | Logits():
                pass  # filled by the caller; computed by `logits`, for any rows
            case Embed():
                embeddings: Array = dequantize_rows(op.weight, step.token_ids)
                buffers[op.out] = embeddings.astype(self._dtype) * op.scale
            case RmsNorm():
                normalized = rms_norm(buffers[op.x], self._weight(op.weight), op.eps)
                buffers[op.out] = buffers[op.out] + normalized if op.accumulate else normalized
            case Linear():
                buffers[op.out] = self._linear(op, step)
            case MixtureOfExperts():
                mixed = mix_experts(buffers[op.x], buffers[op.router], op.experts, self._product)
                buffers[op.out] = buffers[op.out] + mixed
            case RopeAndWriteKV():
                buffers[op.out] = self._rope_and_write_kv(op, step)
            case PagedAttention():
                buffers[op.out] = attend(op, buffers[op.q], step, self._sequences)
            case GatedActivation():
                buffers[op.out] = gated_activation(buffers[op.gate_up], op.activation)

    def _linear(self, op: Linear, step: StepInput) -> Array:
        x = self._buffers[op.x]
        out = np.concatenate([self._product(x, part) for part in op.parts], axis=1)
        if op.bias is not None:
            out = out + self._weight(op.bias)
        if op.accumulate:
            out = self._buffers[op.out] + out
        if step.adapter_slots is not None:
            self._add_adapters(op, step, step.adapter_slots, out)
        return out

    def _add_adapters(self, op: Linear, step: StepInput, slots: IntArray, out: Array) -> None:
        """Add to ``out`` what the adapter of each request's rows adds, part by part."""
        x, starts = self._buffers[op.x], step.query_start_loc
        for slot, begin, end in zip(slots.tolist(), starts[:-1], starts[1:], strict=True):
            if slot == NO_ADAPTER:
                continue
            first_column = 0
            for part in op.parts:
                columns = slice(first_column, first_column + part.shape[0])
                first_column = columns.stop
                pair = self._adapters[slot].pairs.get(part)
                if pair is not None:
                    a, b = pair.a.astype(self._dtype), pair.b.astype(self._dtype)
                    out[begin:end, columns] += (x[begin:end] @ a.T) @ b.T * pair.scale

    def _rope_and_write_kv(self, op: RopeAndWriteKV, step: StepInput) -> Array:
        heads = self._buffers[op.qkv].reshape(len(step.positions), -1, op.head_dim)
        queries, keys, values = np.split(heads, [op.num_heads, op.num_heads + op.num_kv_heads], axis=1)
        if op.norms is not None:
            queries = rms_norm(queries, self._weight(op.norms.query), op.norms.eps)
            keys = rms_norm(keys, self._weight(op.norms.key), op.norms.eps)
        tables = rope_tables_at(op.rope, step.positions)
        self._sequences.write(op.layer, step, SequenceKV(rotate(keys, tables, op.rope), values))
        return rotate(queries, tables, op.rope).reshape(len(step.positions), -1)

    def _product(self, x: Array, weight: Weight) -> Array:
        """``x @ weight.T``, of quantised activations where the program runs on them."""
        if self._quantizes_activations and weight.quantization in INTEGER_QUANTIZATIONS:
            x = dequantize_activations(quantize_activations(x), self._dtype)
        product: Array = x @ self._weight(weight).T
        return product

    def _weight(self, weight: Weight) -> Array:
        """The weight's numbers, dequantised at its first use."""
        if weight not in self._weights:
            self._weights[weight] = dequantize(weight).astype(self._dtype)
        return self._weights[weight]
