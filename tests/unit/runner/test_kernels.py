"""The kernels that a choice names."""

import pytest

from octavo.build import build
from octavo.config import EngineConfig
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.native_sampler import NativeSampler
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.kernels.select import available_threads, native_support
from octavo.kv.spec import KVCacheSpec
from octavo.models.loaded import load_model
from octavo.runner.kernels import KernelChoice, StepLimits, make_kernels


@pytest.fixture
def made(tiny_llama):
    """Make the kernels that a choice names, for a tiny model."""
    opened = []

    def make(*choice):
        model = load_model(tiny_llama())
        spec = KVCacheSpec(
            block_size=16,
            num_layers=model.spec.num_layers,
            num_kv_heads=model.spec.num_kv_heads,
            head_dim=model.spec.head_dim,
            dtype="float16",
        )
        limits = StepLimits(max_num_tokens=64, max_logit_rows=8)
        kernels = make_kernels(
            KernelChoice(*choice), model.program, kv_spec=spec, num_blocks=32, limits=limits
        )
        opened.append(kernels.interpreter)
        return kernels

    yield make
    for interpreter in opened:
        interpreter.close()


def test_the_reference(made):
    interpreter, _ = made("reference", "numpy", 1)
    assert isinstance(interpreter, ReferenceInterpreter)
    assert isinstance(interpreter.sampler, ReferenceSampler)
    assert interpreter.kv_store.num_blocks == 32


def test_native_with_an_instruction_set_and_threads(made):
    interpreter, _ = made("native", "generic", 1)
    assert isinstance(interpreter, NativeInterpreter)
    assert isinstance(interpreter.sampler, NativeSampler)
    assert (interpreter.isa, interpreter.num_threads) == ("generic", 1)
    assert interpreter.kv_store.num_blocks == 32


def test_native_is_the_first_choice_of_an_engine(tiny_llama):
    built = build(EngineConfig.from_options({"model": str(tiny_llama()), "num_blocks": 32}))
    built.engine.close()
    config = built.config
    assert (config.kernels, config.isa) == ("native", native_support().isas[0])
    assert config.num_threads == available_threads()
