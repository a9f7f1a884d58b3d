"""`load_model`: a model file turned into everything the engine is built from."""

from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.kernels.program import Program
from octavo.models.chat_template import ChatTemplate
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_metadata import Metadata
from octavo.models.gguf_tokenizer import build_tokenizer
from octavo.models.model_tokenizer import ModelTokenizer
from octavo.models.registry import find_architecture
from octavo.models.rope import CONFIGURED_CONTEXT
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

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The template that `ModelTokenizer.apply_chat_template` renders; ``None`` if there is none."""
        return self.tokenizer.chat_template


def load_model(
    path: Path | str, *, chat_template: Path | str | None = None, max_model_len: int | None = None
) -> LoadedModel:
    """Open a GGUF file and describe its model as a program. No weight is read yet.

    Args:
        path: the file; short names are resolved by `octavo.models.default_model.resolve_model_path`.
        chat_template: a jinja2 file that replaces the model's own template.
        max_model_len: the configured context [tokens], which decides between the factors of a model with
            LongRoPE; the model's own if ``None``.

    Raises:
        ModelLoadError: the file is truncated, malformed, or asks for something that is not supported.
    """
    file = GGUFFile(Path(path))
    _refuse_part(file.metadata)
    architecture = find_architecture(file.metadata)
    template_path = None if chat_template is None else Path(chat_template)
    tokenizer = build_tokenizer(file.metadata, chat_template=template_path)
    weights = Weights(file)
    metadata = _for_context(file.metadata, max_model_len)
    spec = architecture.read_spec(metadata, weights, vocab_size=tokenizer.vocab_size)
    program = architecture.build_program(spec, weights)
    weights.check_all_used()
    return LoadedModel(
        path=file.path,
        spec=spec,
        program=program,
        tokenizer=tokenizer,
        fingerprint=file.fingerprint(),
        num_parameters=weights.num_parameters,
        weight_bytes=weights.num_bytes,
    )


def _for_context(metadata: Metadata, max_model_len: int | None) -> Metadata:
    if max_model_len is None:
        return metadata
    return Metadata(metadata.path, {**metadata.values, CONFIGURED_CONTEXT: max_model_len})


def _refuse_part(metadata: Metadata) -> None:
    num_parts = metadata.count("split.count", default=1, minimum=0)
    if num_parts > 1:
        raise ModelLoadError(
            f"{metadata.path}: the file is one of {num_parts} parts of a model; join them into one file first"
        )
