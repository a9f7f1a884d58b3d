"""The kernels that a configuration names."""

from octavo.build import build, model_facts
from octavo.config import EngineConfig
from octavo.errors import KernelUnavailableError
from octavo.kernels import select
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.native_sampler import NativeSampler
from octavo.kernels.reference import ReferenceInterpreter
from octavo.kernels.reference_sampling import ReferenceSampler
from octavo.resolve import kv_cache_spec
from octavo.runner.kernels import make_kernels, native_isas


def kernels(path, **options):
    """The kernels of an engine with these options, made anew."""
    config = EngineConfig.from_options({"model": str(path), "num_blocks": 32, **options})
    built = build(config)
    try:
        spec = kv_cache_spec(config, model_facts(built.model))
        return make_kernels(built.config, built.model.program, spec), built.config
    finally:
        built.engine.close()


def test_the_reference(tiny_llama):
    made, config = kernels(tiny_llama(), kernels="reference")
    assert isinstance(made.interpreter, ReferenceInterpreter)
    assert isinstance(made.sampler, ReferenceSampler)
    assert made.interpreter.kv_store.num_blocks == 32
    assert (config.isa, config.num_threads) == ("numpy", 1)


def test_native_with_an_instruction_set_and_threads(tiny_llama):
    made, _ = kernels(tiny_llama(), kernels="native", isa="generic", num_threads=1)
    assert isinstance(made.interpreter, NativeInterpreter)
    assert isinstance(made.sampler, NativeSampler)
    assert (made.interpreter.isa, made.interpreter.num_threads) == ("generic", 1)
    made.interpreter.close()


def test_native_is_the_first_choice(tiny_llama):
    made, config = kernels(tiny_llama())
    assert (config.kernels, config.isa) == ("native", native_isas()[0])
    made.interpreter.close()


def test_without_the_library_there_is_no_instruction_set(monkeypatch):
    def missing():
        raise KernelUnavailableError("not built")

    monkeypatch.setattr(select, "load_library", missing)
    assert native_isas() == ()
