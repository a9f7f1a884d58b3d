"""`Prompts`: a text, token ids, or several of either."""

from typing import Annotated

from pydantic import ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError


def _one_message(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """One complaint instead of one for each form that a prompt can have."""
    try:
        return handler(value)
    except ValidationError:
        raise PydanticCustomError(
            "prompt_type", "must be a string, a list of strings, a list of token ids or a list of such lists"
        ) from None


Prompts = Annotated[str | list[str] | list[int] | list[list[int]], WrapValidator(_one_message)]
