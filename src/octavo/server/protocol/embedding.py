"""``/v1/embeddings``."""

from typing import Literal

from pydantic import BaseModel

from octavo.server.protocol.body import RequestBody
from octavo.server.protocol.prompts import Prompts
from octavo.server.protocol.usage import Usage


class EmbeddingRequest(RequestBody):
    """Texts or token ids to embed."""

    model: str | None = None
    input: Prompts
    """A text, token ids, or several of either."""
    encoding_format: Literal["float", "base64"] = "float"
    """base64 is that of 32-bit floats, least significant byte first."""
    dimensions: int | None = None
    """Only the model's own number."""
    user: str | None = None
    """Accepted, and used for nothing."""
    add_special_tokens: bool = True
    priority: int = 0


class Embedding(BaseModel):
    """Of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    """Of all inputs, in their order."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Embedding]
    usage: Usage
