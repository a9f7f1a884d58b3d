"""`PoolingParams`: how the hidden states of a prompt become one embedding."""

from dataclasses import dataclass

from octavo.diagnostics import shown
from octavo.errors import InvalidRequestError


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolingParams:
    """Parameters of one embedding, under vLLM's name. It is the mean over all tokens of the prompt.

    Raises:
        InvalidRequestError: a value is of the wrong type.
    """

    normalize: bool = True
    """Scale the embedding to length 1, so that a dot product is the cosine of an angle."""

    def __post_init__(self) -> None:
        if not isinstance(self.normalize, bool):
            raise InvalidRequestError(
                f"normalize must be true or false, got {shown(self.normalize)}", param="normalize"
            )
