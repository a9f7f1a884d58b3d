"""`open_model`: whatever form a model has on disk, opened. No weight is read."""

from pathlib import Path
from typing import NamedTuple

from octavo.models.generation_defaults import (
    SamplingDefaults,
    end_token_ids,
    gguf_sampling_defaults,
    json_sampling_defaults,
)
from octavo.models.gguf_parts import open_gguf
from octavo.models.gguf_tokenizer import build_tokenizer
from octavo.models.huggingface_folder import HuggingFaceFolder
from octavo.models.model_tokenizer import ModelTokenizer
from octavo.models.registry import find_architecture
from octavo.models.source import ModelSource
from octavo.models.tokenizer_json import build_json_tokenizer


class OpenModel(NamedTuple):
    """A model's files, before its program is made."""

    source: ModelSource
    tokenizer: ModelTokenizer
    sampling_defaults: SamplingDefaults
    """What the files recommend."""


def open_model(path: Path, *, chat_template: Path | None = None) -> OpenModel:
    """Open a GGUF file, a part of one, or a Hugging Face folder.

    Args:
        path: the file or folder.
        chat_template: a jinja2 file that replaces the model's own templates.

    Raises:
        ModelLoadError: a file is missing, malformed, or asks for something that is not supported.
    """
    if not path.is_dir():
        source = open_gguf(path)
        find_architecture(source.metadata)  # what is not supported at all is said before what is missing
        tokenizer = build_tokenizer(source.metadata, chat_template=chat_template)
        return OpenModel(source, tokenizer, gguf_sampling_defaults(source.metadata))
    folder = HuggingFaceFolder(path)
    tokenizer = build_json_tokenizer(
        path,
        vocab_size=folder.vocab_size,
        end_ids=end_token_ids(path, folder.config.values),
        chat_template=chat_template,
    )
    return OpenModel(folder, tokenizer, json_sampling_defaults(path))
