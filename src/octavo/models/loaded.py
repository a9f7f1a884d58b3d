"""`load_model`: a model file turned into everything the engine is built from."""

from dataclasses import dataclass
from pathlib import Path

from octavo.kernels.program import Program
from octavo.models.chat_template import ChatTemplate
from octavo.models.gguf_tokenizer import GGUFTokenizer
from octavo.models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run. Its weights are views of the memory-mapped file, which they keep open."""

    path: Path
    spec: ModelSpec
    program: Program
    tokenizer: GGUFTokenizer
    chat_template: ChatTemplate | None
    """The template `tokenizer.apply_chat_template` renders; ``None`` if there is none."""
    fingerprint: bytes
    """32 bytes that differ between files whose K/V must not be mixed."""
    num_parameters: int
    weight_bytes: int
    """Size of the weights as stored in the file."""


def load_model(path: Path | str, *, chat_template: Path | str | None = None) -> LoadedModel:
    """Open a GGUF file and describe its model as a program.

    Args:
        path: the file; short names are resolved before (`octavo.models.default_model.resolve_model_path`).
        chat_template: a jinja2 file that replaces the model's own template.

    Raises:
        ModelLoadError: the file is truncated, malformed, or asks for something that is not supported.
    """
