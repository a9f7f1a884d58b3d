"""``/tokenize`` and ``/detokenize``."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from octavo.server.protocol.body import ListOf, RequestBody
from octavo.server.protocol.chat import ChatMessageParam


class TokenizeRequest(RequestBody):
    """Either a text or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[ListOf[ChatMessageParam], Field(min_length=1)] | None = None
    add_special_tokens: bool = True
    """Of a text: put the tokens around it that the model wants there."""
    parse_special: bool = False
    """Take ``<|im_start|>`` and the like in a text as the control tokens they name."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False


class TokenizeResponse(BaseModel):
    """The tokens that a completion with the same input would begin with."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(RequestBody):
    """Token ids, of text or not."""

    model: str | None = None
    tokens: ListOf[int]


class DetokenizeResponse(BaseModel):
    """Their text, special tokens included."""

    prompt: str
