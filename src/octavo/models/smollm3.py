"""The SmolLM 3 architecture: llama with layers that know nothing of positions."""

from dataclasses import replace

from octavo.kernels.program import NO_ROPE, RopeStyle
from octavo.models.gguf_metadata import Metadata
from octavo.models.layer_pattern import read_layer_pattern
from octavo.models.llama import build_program
from octavo.models.spec import LayerSpec, ModelSpec
from octavo.models.spec_reader import read_spec as read_common_spec
from octavo.models.weights import Weights

__all__ = ["build_program", "read_spec"]

_ROPE_PERIOD = 4


def read_spec(metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
    """Read the ``smollm3`` section of a model.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """

    def read_layers(layer: LayerSpec, num_layers: int) -> tuple[LayerSpec, ...]:
        has_rope = read_layer_pattern(metadata, "smollm3.rope.layer_pattern", num_layers, period=_ROPE_PERIOD)
        without = replace(layer, rope=NO_ROPE)
        return tuple(layer if flag else without for flag in has_rope)

    return read_common_spec(
        metadata,
        weights,
        architecture="smollm3",
        vocab_size=vocab_size,
        rope_style=RopeStyle.INTERLEAVED,
        read_layers=read_layers,
    )
