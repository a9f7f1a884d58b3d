"""The Gemma 3 architecture (text): Gemma 2 without soft caps, with norms of heads and two ropes."""

from dataclasses import replace

from octavo.kernels.program import Program, RopeSpec
from octavo.models.gemma2 import build_program as build_gemma_program
from octavo.models.gguf_metadata import Metadata
from octavo.models.layer_pattern import read_layer_pattern
from octavo.models.rope_scaling import plain_frequencies
from octavo.models.spec import LayerSpec, ModelSpec
from octavo.models.spec_reader import read_spec as read_common_spec
from octavo.models.weights import Weights

_LAYERS_OF_27B = 62
"""GGUF files do not say that this one size scales its queries by another number than the size of a head."""
_WINDOWED_PERIOD = 6
_LOCAL_ROPE_BASE = 10_000.0


def build_program(spec: ModelSpec, weights: Weights) -> Program:
    """The model as a program.

    Raises:
        ModelLoadError: a tensor is missing, or of another shape than ``spec`` says.
    """
    return build_gemma_program(spec, weights, head_norms=True)


def read_spec(metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
    """Read the ``gemma3`` section of a model.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """

    def read_layers(layer: LayerSpec, num_layers: int) -> tuple[LayerSpec, ...]:
        is_windowed = read_layer_pattern(
            metadata, "gemma3.attention.sliding_window_pattern", num_layers, period=_WINDOWED_PERIOD
        )
        base = metadata.number("gemma3.rope.freq_base_swa", default=_LOCAL_ROPE_BASE)
        frequencies = plain_frequencies(base, layer.rope.rotary_dim).tolist()
        windowed = replace(layer, rope=RopeSpec(layer.rope.style, layer.rope.rotary_dim, tuple(frequencies)))
        everywhere = replace(layer, window=None)
        return tuple(windowed if flag else everywhere for flag in is_windowed)

    spec = read_common_spec(
        metadata, weights, architecture="gemma3", vocab_size=vocab_size, read_layers=read_layers
    )
    if spec.num_layers == _LAYERS_OF_27B and "gemma3.attention.scale" not in metadata.values:
        return replace(spec, attention_scale=(spec.hidden_size / spec.num_heads) ** -0.5)
    return spec
