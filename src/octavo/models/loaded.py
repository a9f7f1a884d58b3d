"""`load_model`: a model file turned into everything the engine is built from."""

from dataclasses import dataclass
from pathlib import Path

from octavo.config import QuantizationName
from octavo.errors import ConfigError
from octavo.kernels.program import Program
from octavo.kernels.select import available_threads
from octavo.models.cache_folder import cache_folder
from octavo.models.chat_template import ChatTemplate
from octavo.models.generation_defaults import SamplingDefaults
from octavo.models.gguf_metadata import Metadata
from octavo.models.model_tokenizer import ModelTokenizer
from octavo.models.opening import OpenModel, open_model
from octavo.models.quantized_source import quantize_source
from octavo.models.registry import find_architecture
from octavo.models.rope import CONFIGURED_CONTEXT
from octavo.models.source import ModelSource
from octavo.models.spec import ModelSpec
from octavo.models.weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run. Its weights are views of the memory-mapped file, which they keep open."""

    path: Path
    spec: ModelSpec
    program: Program
    tokenizer: ModelTokenizer
    fingerprint: bytes
    """32 bytes that differ between files whose K/V must not be mixed."""
    num_parameters: int
    weight_bytes: int
    """Size of the weights as stored in the file."""
    sampling_defaults: SamplingDefaults
    """Sampling parameters that the model's files recommend."""

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The template that `ModelTokenizer.apply_chat_template` renders; ``None`` if there is none."""
        return self.tokenizer.chat_template


def load_model(
    path: Path | str,
    *,
    chat_template: Path | str | None = None,
    max_model_len: int | None = None,
    quantization: QuantizationName = "none",
    progress: bool = False,
) -> LoadedModel:
    """Open a model and describe it as a program. No weight is read yet, unless it is to be quantised.

    Args:
        path: a .gguf file, or a folder with config.json, safetensors files and tokenizer.json;
            names are resolved by `octavo.models.default_model.resolve_model_path`.
        chat_template: a jinja2 file that replaces the model's own template.
        max_model_len: the configured context [tokens], which decides between the factors of a model with
            LongRoPE; the model's own if ``None``.
        quantization: what the weights of safetensors files become. The first time they are packed into the
            cache folder, from where they are mapped.
        progress: show a bar on standard error while they are packed.

    Raises:
        ConfigError: a GGUF file, which has its own quantisation, is to be quantised.
        ModelLoadError: the file is truncated, malformed, or asks for something that is not supported.
    """
    check_quantization(Path(path), quantization)
    template_path = None if chat_template is None else Path(chat_template)
    model = open_model(Path(path), chat_template=template_path)
    described = _describe(model, model.source, max_model_len)
    if quantization == "none":
        return described
    packed = quantize_source(
        model.source, quantization, cache=cache_folder(), num_threads=available_threads(), progress=progress
    )
    return _describe(model, packed, max_model_len)


def check_quantization(path: Path, kind: QuantizationName) -> None:
    """Only weights that are not quantised yet can be.

    Raises:
        ConfigError: it is asked for where it cannot be done.
    """
    if kind != "none" and not path.is_dir():
        raise ConfigError(
            f"{path}: quantization={kind} is for folders of safetensors files; a GGUF file has its own"
            " quantisation, so leave it out"
        )


def _describe(model: OpenModel, source: ModelSource, max_model_len: int | None) -> LoadedModel:
    """The model with weights from ``source``, checked to be all that its architecture needs and no more."""
    architecture, weights = find_architecture(source.metadata), Weights(source)
    metadata = _for_context(source.metadata, max_model_len)
    spec = architecture.read_spec(metadata, weights, vocab_size=model.tokenizer.vocab_size)
    program = architecture.build_program(spec, weights)
    weights.check_all_used()
    return LoadedModel(
        path=source.path,
        spec=spec,
        program=program,
        tokenizer=model.tokenizer,
        fingerprint=source.fingerprint(),
        num_parameters=weights.num_parameters,
        weight_bytes=weights.num_bytes,
        sampling_defaults=model.sampling_defaults,
    )


def _for_context(metadata: Metadata, max_model_len: int | None) -> Metadata:
    if max_model_len is None:
        return metadata
    return Metadata(metadata.path, {**metadata.values, CONFIGURED_CONTEXT: max_model_len})
