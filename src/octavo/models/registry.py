"""The architectures that can be run, by the name in ``general.architecture``."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from octavo.errors import ModelLoadError
from octavo.kernels.program import Program
from octavo.models import gemma2, gemma3, llama, phi3, qwen2, qwen3, qwen3moe, smollm3
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.spec import ModelSpec
from octavo.models.weights import Weights


class SpecReader(Protocol):
    """Reads an architecture's section of the metadata."""

    def __call__(self, metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
        """The model's numbers; `ModelLoadError` if they make no sense."""
        ...


class Architecture(NamedTuple):
    """One way to build a model."""

    read_spec: SpecReader
    build_program: Callable[[ModelSpec, Weights], Program]


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture(llama.read_spec, llama.build_program),
        "smollm3": Architecture(smollm3.read_spec, smollm3.build_program),
        "qwen2": Architecture(qwen2.read_spec, qwen2.build_program),
        "qwen3": Architecture(qwen3.read_spec, qwen3.build_program),
        "qwen3moe": Architecture(qwen3moe.read_spec, qwen3moe.build_program),
        "gemma2": Architecture(gemma2.read_spec, gemma2.build_program),
        "gemma3": Architecture(gemma3.read_spec, gemma3.build_program),
        "phi3": Architecture(phi3.read_spec, phi3.build_program),
    }
)


def find_architecture(metadata: Metadata) -> Architecture:
    """The architecture that a file names.

    Raises:
        ModelLoadError: it names none, or one that is not supported.
    """
    name = metadata.text("general.architecture")
    architecture = ARCHITECTURES.get(name or "")
    if architecture is None:
        known = ", ".join(f"{known!r}" for known in ARCHITECTURES)
        raise ModelLoadError(
            f"{metadata.path}: architecture {quote(name)} is not supported; supported: {known}"
        )
    return architecture
