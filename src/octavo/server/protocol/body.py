"""`RequestBody`: what all models of requests have in common."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

T = TypeVar("T")
ListOf = Annotated[list[T], Field(fail_fast=True)]
"""A list that is read up to its first wrong item: a client may send millions of them."""


class RequestBody(BaseModel):
    """A body whose unknown fields are kept, to be told about."""

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, body: object) -> object:
        """Many clients send null for what they do not set, also where the default is something else."""
        if not isinstance(body, dict) or None not in body.values():
            return body
        return {
            name: value for name, value in body.items() if value is not None or not cls._has_default(name)
        }

    @classmethod
    def _has_default(cls, name: str) -> bool:
        field = cls.model_fields.get(name)
        return field is not None and not field.is_required() and field.default is not None
