"""The one shape of every error."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    """What was got, the limit, and the way out."""
    type: str
    param: str | None
    """The field at fault."""
    code: str | None


class ErrorResponse(BaseModel):
    """Body of every response with a status of 400 or more, and of the error event of a stream."""

    error: ErrorDetail
