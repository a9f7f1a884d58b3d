"""A `Program` as the C structs that the native library compiles."""

import ctypes
from collections.abc import Callable, Iterable

import numpy as np

from octavo.kernels.dataflow import assign_storage
from octavo.kernels.mapped_pages import MappedPages
from octavo.kernels.native_library import (
    QUANTIZATION_CODES,
    OpStruct,
    ProgramStruct,
    ProgressCallback,
    RopeStruct,
    WeightStruct,
    address,
)
from octavo.kernels.program import (
    Activation,
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
    RopeSpec,
    RopeStyle,
)
from octavo.kernels.weight import Weight

_OP_KINDS = (
    Input,
    Embed,
    RmsNorm,
    Linear,
    RopeAndWriteKV,
    PagedAttention,
    GatedActivation,
    Logits,
    MixtureOfExperts,
    KeepLogitRows,
)
"""In the order of ``octavo::OpKind``."""
_ROPE_STYLES = (RopeStyle.INTERLEAVED, RopeStyle.HALF_SPLIT)
_ACTIVATIONS = (Activation.SILU, Activation.GELU_TANH)

Progress = Callable[[int, int], None]
"""Called with the bytes of weights that are ready, and of all."""


class ProgramStructs:
    """Everything that ``octavo_program_create`` reads, kept alive as long as this object is.

    Attributes:
        struct: what the library takes.
        slots: number of each buffer's slot, by the buffer's index; shared as `assign_storage` says.
        weights: what the library still reads when the program is made, until that is destroyed.

    Raises:
        ConfigError: a number is too large for the kernels.
    """

    def __init__(
        self,
        program: Program,
        *,
        isa: str,
        max_num_tokens: int,
        max_logit_rows: int,
        progress: Progress | None = None,
    ) -> None:
        self.slots = _number_slots(assign_storage(program.ops))
        self._weights: dict[int, tuple[int, Weight]] = {}  # by identity: a tied weight is packed once
        self._parts: list[int] = []
        self._ropes: dict[RopeSpec, int] = {}
        ops = [self._op(op) for op in program.ops]
        widths = self._slot_widths(program.buffers)
        self._frequencies = [np.array(rope.frequencies, dtype=np.float64) for rope in self._ropes]
        self.weights = tuple(weight for _, weight in self._weights.values())
        self._callback = ProgressCallback(MappedPages(self.weights).released_by(progress))
        weights = [_weight_struct(weight) for weight in self.weights]
        ropes = [self._rope_struct(rope, index) for rope, index in self._ropes.items()]
        self.struct = ProgramStruct(
            ops=(OpStruct * len(ops))(*ops),
            slot_widths=(ctypes.c_int32 * len(widths))(*widths),
            weights=(WeightStruct * len(weights))(*weights),
            parts=(ctypes.c_int32 * len(self._parts))(*self._parts),
            ropes=(RopeStruct * len(ropes))(*ropes),
            num_ops=len(ops),
            num_slots=len(widths),
            num_weights=len(weights),
            num_parts=len(self._parts),
            num_ropes=len(ropes),
            max_num_tokens=max_num_tokens,
            max_logit_rows=max_logit_rows,
            isa=isa.encode(),
            progress=self._callback,
        )

    def _slot(self, buffer: Buffer) -> int:
        return self.slots[buffer.index]

    def _slot_widths(self, buffers: Iterable[Buffer]) -> list[int]:
        widths = [0] * len(set(self.slots.values()))
        for buffer in buffers:
            if buffer.index in self.slots:
                widths[self._slot(buffer)] = buffer.width
        return widths

    def _weight(self, weight: Weight) -> int:
        return self._weights.setdefault(id(weight), (len(self._weights), weight))[0]

    def _rope_struct(self, rope: RopeSpec, index: int) -> RopeStruct:
        frequencies = self._frequencies[index]
        return RopeStruct(
            frequencies=address(frequencies),
            magnitude=rope.magnitude,
            num_frequencies=len(frequencies),
            style=_ROPE_STYLES.index(rope.style),
        )

    def _op(self, op: Op) -> OpStruct:
        struct = OpStruct(kind=_OP_KINDS.index(type(op)), bias=-1, query_norm=-1, key_norm=-1)
        match op:
            case Input():
                struct.out = self._slot(op.out)
            case Embed():
                struct.out, struct.weight = self._slot(op.out), self._weight(op.weight)
                struct.scale = op.scale
            case RmsNorm():
                struct.out, struct.x = self._slot(op.out), self._slot(op.x)
                struct.weight, struct.eps = self._weight(op.weight), op.eps
                struct.accumulate = op.accumulate
            case Linear():
                self._fill_linear(struct, op)
            case MixtureOfExperts():
                self._fill_experts(struct, op)
            case RopeAndWriteKV() | PagedAttention():
                self._fill_heads(struct, op)
            case GatedActivation():
                struct.out, struct.x = self._slot(op.out), self._slot(op.gate_up)
                struct.activation = _ACTIVATIONS.index(op.activation)
            case KeepLogitRows():
                struct.out = struct.x = self._slot(op.out)
                struct.accumulate = True
            case Logits():
                struct.x, struct.weight = self._slot(op.x), self._weight(op.weight)
                struct.soft_cap = op.soft_cap or 0.0
        return struct

    def _fill_linear(self, struct: OpStruct, op: Linear) -> None:
        struct.out, struct.x = self._slot(op.out), self._slot(op.x)
        struct.first_part, struct.num_parts = len(self._parts), len(op.parts)
        self._parts += [self._weight(part) for part in op.parts]
        struct.accumulate = op.accumulate
        if op.bias is not None:
            struct.bias = self._weight(op.bias)

    def _fill_experts(self, struct: OpStruct, op: MixtureOfExperts) -> None:
        experts = op.experts
        struct.out, struct.x, struct.router = self._slot(op.out), self._slot(op.x), self._slot(op.router)
        parts = [part for each in zip(experts.gate, experts.up, experts.down, strict=True) for part in each]
        struct.first_part, struct.num_parts = len(self._parts), len(parts)
        self._parts += [self._weight(part) for part in parts]
        struct.num_experts, struct.top_k = len(experts.gate), experts.top_k
        struct.normalized, struct.accumulate = experts.normalized, True
        struct.activation = _ACTIVATIONS.index(experts.activation)

    def _fill_heads(self, struct: OpStruct, op: RopeAndWriteKV | PagedAttention) -> None:
        struct.out, struct.layer = self._slot(op.out), op.layer
        struct.num_heads, struct.num_kv_heads = op.num_heads, op.num_kv_heads
        struct.head_dim = op.head_dim
        if isinstance(op, RopeAndWriteKV):
            struct.x = self._slot(op.qkv)
            struct.rope = self._ropes.setdefault(op.rope, len(self._ropes))
            if op.norms is not None:
                struct.query_norm = self._weight(op.norms.query)
                struct.key_norm = self._weight(op.norms.key)
                struct.eps = op.norms.eps
        else:
            struct.x, struct.scale = self._slot(op.q), op.scale
            struct.window, struct.soft_cap = op.window or 0, op.soft_cap or 0.0


def _number_slots(storage: dict[int, int]) -> dict[int, int]:
    """Slots numbered from 0 without gaps."""
    numbers = {slot: number for number, slot in enumerate(sorted(set(storage.values())))}
    return {buffer: numbers[slot] for buffer, slot in storage.items()}


def _weight_struct(weight: Weight) -> WeightStruct:
    rows = weight.shape[0] if len(weight.shape) == 2 else 1
    return WeightStruct(
        bytes=address(weight.raw),
        num_bytes=weight.raw.nbytes,
        rows=rows,
        columns=weight.shape[-1],
        name=weight.name.encode(),
        quantization=QUANTIZATION_CODES[weight.quantization],
    )
