"""A model's tokenizer without the model."""

from octavo.engine.tokenizer import Tokenizer
from octavo.models.default_model import resolve_model_path
from octavo.models.opening import open_model


def model_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model: a .gguf file, a folder, or a name.

    Raises:
        ModelLoadError: there is no such file, or it holds no tokenizer that is supported.
    """
    return open_model(resolve_model_path(model)).tokenizer
