"""The Qwen 3 architecture with a mixture of experts for an MLP."""

from dataclasses import replace

from octavo.kernels.program import Program
from octavo.models.decoder import DecoderBuilder
from octavo.models.gguf_metadata import Metadata
from octavo.models.spec import ModelSpec
from octavo.models.spec_reader import read_experts
from octavo.models.spec_reader import read_spec as read_common_spec
from octavo.models.weights import Weights


def build_program(spec: ModelSpec, weights: Weights) -> Program:
    """The model as a program.

    Raises:
        ModelLoadError: a tensor is missing, or of another shape than ``spec`` says.
    """
    decoder = DecoderBuilder(spec, weights)
    x = decoder.embed()
    for layer in range(spec.num_layers):
        h = decoder.norm(x, layer, "attn_norm")
        x = decoder.linear(decoder.attend(h, layer, normed=True), layer, "attn_output", add_to=x)
        h = decoder.norm(x, layer, "ffn_norm")
        x = decoder.mixture_of_experts(h, layer, add_to=x)
    return decoder.finish(x)


def read_spec(metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
    """Read the ``qwen3moe`` section of a model.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """
    spec = read_common_spec(metadata, weights, architecture="qwen3moe", vocab_size=vocab_size)
    return replace(spec, experts=read_experts(metadata, "qwen3moe"))
