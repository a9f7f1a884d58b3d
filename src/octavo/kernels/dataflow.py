"""Which ops of a `Program` read which buffers, and what follows: storage to share, rows to drop."""

from collections.abc import Iterable, Iterator

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


def buffers_read(op: Op) -> Iterator[Buffer]:
    """The buffers whose content ``op`` uses."""
    match op:
        case Input() | Embed():
            return
        case Logits():
            yield op.x
        case RmsNorm() | Linear():
            yield op.x
            if op.accumulate:
                yield op.out
        case MixtureOfExperts():
            yield from (op.x, op.router, op.out)
        case KeepLogitRows():
            yield op.out
        case RopeAndWriteKV():
            yield op.qkv
        case PagedAttention():
            yield op.q
        case GatedActivation():
            yield op.gate_up


def buffer_written(op: Op) -> Buffer | None:
    """The buffer that ``op`` fills, if any."""
    return None if isinstance(op, Logits) else op.out


def assign_storage(ops: Iterable[Op]) -> dict[int, int]:
    """Give each buffer a storage slot, reusing a slot after its buffer's last use (linear scan).

    Returns:
        Buffer index to slot number. Buffers that are alive at the same time never share a slot, and an
        op's output never shares one with its inputs; buffers that share a slot have the same width.
    """
    ops = list(ops)
    last_use: dict[int, int] = {}
    for position, op in enumerate(ops):
        for buffer in buffers_read(op):
            last_use[buffer.index] = position
    slots: dict[int, int] = {}
    free: dict[int, list[int]] = {}
    for position, op in enumerate(ops):
        out = buffer_written(op)
        if out is not None and out.index not in slots:
            reusable = free.setdefault(out.width, [])
            slots[out.index] = reusable.pop() if reusable else len(set(slots.values()))
        for buffer in {b.index: b for b in buffers_read(op)}.values():
            if last_use[buffer.index] == position and buffer.index in slots:
                free.setdefault(buffer.width, []).append(slots[buffer.index])
    return slots


def keep_logit_rows(program: Program) -> None:
    """Put `KeepLogitRows` behind the last op that writes K and V, for all that is read after it; in place.

    Raises:
        ValueError: it has such ops.
    """
    ops = program.ops
    if any(isinstance(op, KeepLogitRows) for op in ops):
        raise ValueError("the program drops rows already")
    writers = [place for place, op in enumerate(ops) if isinstance(op, RopeAndWriteKV)]
    if not writers:
        return
    before, after = ops[: writers[-1] + 1], ops[writers[-1] + 1 :]
    written = {buffer_written(op) for op in before}
    read = dict.fromkeys(buffer for op in after for buffer in buffers_read(op) if buffer in written)
    program.ops = [*before, *map(KeepLogitRows, read), *after]
