"""``/v1/models``."""

from typing import Literal

from pydantic import BaseModel


class ModelCard(BaseModel):
    """A model that can be asked."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "octavo"
    root: str
    """The model file's name, or the adapter's."""
    parent: str | None = None
    """Of a LoRA adapter: the model that it changes."""
    max_model_len: int
    """Longest sequence, prompt and output together [tokens]."""


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
