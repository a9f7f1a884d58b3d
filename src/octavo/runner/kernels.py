"""Choosing what computes: the native kernels or the numpy reference. Imported only when it is chosen."""

from typing import NamedTuple

from octavo.config import ResolvedConfig
from octavo.kernels.interpreter import Interpreter
from octavo.kernels.program import Program
from octavo.kernels.sampling import Sampler
from octavo.kv.spec import KVCacheSpec


class Kernels(NamedTuple):
    """What runs a model, and what turns its logits into tokens."""

    interpreter: Interpreter
    sampler: Sampler


def make_kernels(config: ResolvedConfig, program: Program, kv_spec: KVCacheSpec) -> Kernels:
    """Make the chosen kernels ready: native code lays the weights out anew and starts its threads.

    Raises:
        KernelUnavailableError: they cannot run here.
    """
    return _reference(config, program, kv_spec)


def _reference(config: ResolvedConfig, program: Program, kv_spec: KVCacheSpec) -> Kernels:
    from octavo.kernels.reference import ReferenceInterpreter
    from octavo.kernels.reference_sampling import ReferenceSampler

    return Kernels(ReferenceInterpreter(program, kv_spec, config.num_blocks), ReferenceSampler())


def native_isas() -> tuple[str, ...]:
    """Instruction sets that the native kernels can use on this machine, the best first."""
    return ()
