"""A model's tokenizer without the model."""

from octavo.engine.tokenizer import Tokenizer
from octavo.models.default_model import resolve_model_path
from octavo.models.gguf import GGUFFile
from octavo.models.gguf_tokenizer import build_tokenizer


def model_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a .gguf file, or of the model with this short name.

    Raises:
        ModelLoadError: there is no such file, or it holds no tokenizer that is supported.
    """
    return build_tokenizer(GGUFFile(resolve_model_path(model)).metadata)
