"""The kernels that a configuration names, made ready. Only those that are chosen are imported."""

from typing import NamedTuple

from octavo.config import ResolvedConfig
from octavo.errors import KernelUnavailableError
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Program
from octavo.kernels.sampling import Sampler
from octavo.kv.spec import KVCacheSpec


class Kernels(NamedTuple):
    """What runs a model, and what turns its logits into tokens."""

    interpreter: Interpreter
    sampler: Sampler


def make_kernels(config: ResolvedConfig, program: Program, kv_spec: KVCacheSpec) -> Kernels:
    """Make the chosen kernels ready: native ones lay out the weights anew and start their threads.

    Raises:
        KernelUnavailableError: they cannot run here.
        EngineError: there is not enough memory.
    """
    make = _native if config.kernels == "native" else _reference
    return make(config, program, kv_spec)


def native_isas() -> tuple[str, ...]:
    """Instruction sets that the native kernels can use here, the best first; none without the library."""
    from octavo.kernels.select import available_isas

    try:
        return available_isas()
    except KernelUnavailableError:
        return ()


def _native(config: ResolvedConfig, program: Program, kv_spec: KVCacheSpec) -> Kernels:
    from octavo.kernels.native import NativeInterpreter

    interpreter = NativeInterpreter(
        program,
        kv_spec,
        config.num_blocks,
        max_num_tokens=config.scheduler.max_num_batched_tokens,
        max_logit_rows=config.scheduler.max_num_seqs,
        num_threads=config.num_threads,
        isa=config.isa,
    )
    return Kernels(interpreter, interpreter.sampler)


def _reference(config: ResolvedConfig, program: Program, kv_spec: KVCacheSpec) -> Kernels:
    from octavo.kernels.reference import ReferenceInterpreter
    from octavo.kernels.reference_sampling import ReferenceSampler

    return Kernels(ReferenceInterpreter(program, kv_spec, config.num_blocks), ReferenceSampler())
