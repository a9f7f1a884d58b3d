"""The Gemma 2 architecture: norms around every part, soft caps, a window on every other layer."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from octavo.kernels.program import Activation, Program
from octavo.models.decoder import DecoderBuilder
from octavo.models.gguf_metadata import Metadata, MetadataValue
from octavo.models.layer_pattern import read_layer_pattern
from octavo.models.spec import LayerSpec, ModelSpec
from octavo.models.spec_reader import read_spec as read_common_spec
from octavo.models.weights import Weights

_LAYERS_OF_27B = 46
"""GGUF files do not say that this one size scales its queries by another number than the size of a head."""
_WINDOWED_PERIOD = 2
_UNLESS_SAID: Mapping[str, MetadataValue] = MappingProxyType(
    {
        "gemma2.attention.sliding_window": 4096,
        "gemma2.attn_logit_softcapping": 50.0,
        "gemma2.final_logit_softcapping": 30.0,
    }
)
"""The first GGUF files of Gemma 2 do not say what all of its sizes have in common."""


def build_program(spec: ModelSpec, weights: Weights, *, head_norms: bool = False) -> Program:
    """The model as a program.

    Raises:
        ModelLoadError: a tensor is missing, or of another shape than ``spec`` says.
    """
    decoder = DecoderBuilder(spec, weights)
    x = decoder.embed(scale=spec.hidden_size**0.5)
    for layer in range(spec.num_layers):
        h = decoder.norm(x, layer, "attn_norm")
        h = decoder.linear(decoder.attend(h, layer, normed=head_norms), layer, "attn_output")
        x = decoder.norm(h, layer, "post_attention_norm", add_to=x)
        h = decoder.norm(x, layer, "ffn_norm")
        h = decoder.gated_mlp(h, layer, activation=Activation.GELU_TANH)
        x = decoder.norm(decoder.linear(h, layer, "ffn_down"), layer, "post_ffw_norm", add_to=x)
    return decoder.finish(x)


def read_spec(metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
    """Read the ``gemma2`` section of a model.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """
    metadata = Metadata(metadata.path, {**_UNLESS_SAID, **metadata.values})

    def read_layers(layer: LayerSpec, num_layers: int) -> tuple[LayerSpec, ...]:
        is_windowed = read_layer_pattern(
            metadata, "gemma2.attention.sliding_window_pattern", num_layers, period=_WINDOWED_PERIOD
        )
        everywhere = replace(layer, window=None)
        return tuple(layer if flag else everywhere for flag in is_windowed)

    spec = read_common_spec(
        metadata, weights, architecture="gemma2", vocab_size=vocab_size, read_layers=read_layers
    )
    if spec.num_layers == _LAYERS_OF_27B and "gemma2.attention.scale" not in metadata.values:
        return replace(spec, attention_scale=(spec.hidden_size / spec.num_heads) ** -0.5)
    return spec
