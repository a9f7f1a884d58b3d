"""`RequestBody`: what all models of requests have in common."""

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """A body whose unknown fields are kept, to be told about."""

    model_config = ConfigDict(extra="allow", strict=True)
