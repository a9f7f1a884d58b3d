"""`expose_hidden_states`: a program whose last hidden states can be read after a run."""

from typing import NamedTuple

from octavo.kernels.program import Buffer, Program, RmsNorm


class ExposedProgram(NamedTuple):
    """A program, and where its hidden states are."""

    program: Program
    hidden_states: Buffer | None
    """What the head reads, of every row: the output of the final norm; ``None`` without such a norm."""


def expose_hidden_states(program: Program) -> ExposedProgram:
    """The same program with the final norm once more, into a buffer that no op reads.

    Only such a buffer is sure to hold its rows after a run: the one that the head reads may be kept in
    another form. A norm of all rows costs less than a thousandth of a step.
    """
    head = program.head
    norm = program.ops[-2] if head is not None and len(program.ops) > 1 else None
    if not isinstance(norm, RmsNorm) or head is None or norm.out != head.x or norm.accumulate:
        return ExposedProgram(program, None)
    exposed = Program(program.ops[:-1], list(program.buffers))
    hidden_states = exposed.rms_norm(norm.x, norm.weight, eps=norm.eps)
    exposed.ops.append(head)
    return ExposedProgram(exposed, hidden_states)
