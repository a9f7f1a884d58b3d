"""The Qwen 2 architecture (2 and 2.5): llama with biases on queries, keys and values."""

from octavo.kernels.program import Program
from octavo.models.decoder import DecoderBuilder
from octavo.models.gguf_metadata import Metadata
from octavo.models.spec import ModelSpec
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
        x = decoder.linear(decoder.attend(h, layer, biased=True), layer, "attn_output", add_to=x)
        h = decoder.norm(x, layer, "ffn_norm")
        x = decoder.linear(decoder.gated_mlp(h, layer), layer, "ffn_down", add_to=x)
    return decoder.finish(x)


def read_spec(metadata: Metadata, weights: Weights, *, vocab_size: int) -> ModelSpec:
    """Read the ``qwen2`` section of a model.

    Raises:
        ModelLoadError: a value is missing or out of range, or asks for something that is not supported.
    """
    return read_common_spec(metadata, weights, architecture="qwen2", vocab_size=vocab_size)
