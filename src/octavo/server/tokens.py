"""``/tokenize`` and ``/detokenize``."""

import asyncio
from functools import partial

from fastapi import APIRouter, Request

from octavo.diagnostics import shown
from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError
from octavo.server.chat import conversation, encode_messages
from octavo.server.logprobs import token_name
from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.token import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from octavo.server.state import ServerState, state_of

router = APIRouter(tags=["tokens"], responses={"4XX": {"model": ErrorResponse}})


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, request: Request) -> TokenizeResponse:
    """The token ids of a text, or of a conversation written out by the chat template."""
    state = state_of(request)
    state.model.adapter(body.model, state.engine.loras)
    token_ids = await _token_ids(body, state)
    names = await asyncio.to_thread(_names, token_ids, state.tokenizer) if body.return_token_strs else None
    return TokenizeResponse(
        count=len(token_ids),
        max_model_len=state.model.max_model_len,
        tokens=token_ids,
        token_strs=names,
    )


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, request: Request) -> DetokenizeResponse:
    """The text of token ids."""
    state = state_of(request)
    state.model.adapter(body.model, state.engine.loras)
    return DetokenizeResponse(prompt=await asyncio.to_thread(_text, body.tokens, state.tokenizer))


async def _token_ids(body: TokenizeRequest, state: ServerState) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("give either prompt or messages", param="prompt")
    if body.prompt is not None:
        state.text_limit.check(body.prompt, param="prompt")
        encode = partial(
            state.tokenizer.encode,
            body.prompt,
            add_special_tokens=body.add_special_tokens,
            parse_special=body.parse_special,
        )
        return await asyncio.to_thread(encode)
    encoded = await encode_messages(
        conversation(body.messages or ()),
        state,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        chat_template_kwargs=body.chat_template_kwargs,
    )
    return list(encoded.token_ids)


def _names(token_ids: list[int], tokenizer: Tokenizer) -> list[str]:
    return [token_name(tokenizer.token_bytes(token_id)) for token_id in token_ids]


def _text(token_ids: list[int], tokenizer: Tokenizer) -> str:
    wrong = next((token_id for token_id in token_ids if not 0 <= token_id < tokenizer.vocab_size), None)
    if wrong is not None:
        raise InvalidRequestError(
            f"tokens must be between 0 and {tokenizer.vocab_size - 1}, got {shown(wrong)}", param="tokens"
        )
    return tokenizer.decode(token_ids)
