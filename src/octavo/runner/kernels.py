"""The kernels that a configuration names, made ready. Only those that are chosen are imported."""

from typing import Literal, NamedTuple

from octavo.kernels.hidden_states import expose_hidden_states
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Buffer, Program
from octavo.kv.spec import KVCacheSpec


class KernelChoice(NamedTuple):
    """Which kernels, with nothing left open."""

    kernels: Literal["native", "reference"]
    isa: str
    """Instruction set of the native kernels."""
    num_threads: int
    """Threads of the native kernels."""


class StepLimits(NamedTuple):
    """The largest step there will be."""

    max_num_tokens: int
    max_logit_rows: int


class Kernels(NamedTuple):
    """What runs a model and samples."""

    interpreter: Interpreter
    hidden_states: Buffer | None
    """Of every row of a step; ``None`` if the model has no final norm."""


def make_kernels(
    choice: KernelChoice,
    program: Program,
    *,
    kv_spec: KVCacheSpec,
    num_blocks: int,
    limits: StepLimits,
) -> Kernels:
    """Make the chosen kernels ready: native ones lay out the weights anew and start their threads.

    Args:
        choice: which.
        program: the model.
        kv_spec: shape of the KV cache.
        num_blocks: usable KV blocks.
        limits: the largest step there will be.

    Raises:
        KernelUnavailableError: they cannot run here.
        EngineError: there is not enough memory.
    """
    exposed, hidden_states = expose_hidden_states(program)
    if choice.kernels == "reference":
        return _reference(exposed, kv_spec, num_blocks)._replace(hidden_states=hidden_states)
    from octavo.kernels.native import NativeInterpreter

    interpreter = NativeInterpreter(
        exposed,
        kv_spec,
        num_blocks,
        max_num_tokens=limits.max_num_tokens,
        max_logit_rows=limits.max_logit_rows,
        num_threads=choice.num_threads,
        isa=choice.isa,
    )
    return Kernels(interpreter, hidden_states)


def _reference(program: Program, kv_spec: KVCacheSpec, num_blocks: int) -> Kernels:
    from octavo.kernels.reference import ReferenceInterpreter

    return Kernels(ReferenceInterpreter(program, kv_spec, num_blocks), None)
