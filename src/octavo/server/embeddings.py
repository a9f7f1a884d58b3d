"""``/v1/embeddings``: the mean of the last hidden states of a text's tokens."""

import asyncio
import base64
import sys
import time
import uuid
from array import array
from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter, Request, Response

from octavo.engine.prompt import EncodedPrompt
from octavo.errors import InvalidRequestError
from octavo.outputs import EmbeddingRequestOutput
from octavo.server.disconnect import until_disconnect
from octavo.server.generation import salted
from octavo.server.limits import check_num_choices
from octavo.server.observation import REQUEST_ID_HEADER, caller_headers
from octavo.server.prompts import encode_prompts
from octavo.server.protocol.embedding import Embedding, EmbeddingList, EmbeddingRequest
from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.usage import PromptTokensDetails, Usage
from octavo.server.state import state_of, tenant_of
from octavo.server.unknown_fields import note_unknown_fields

router = APIRouter(tags=["embeddings"])


@router.post(
    "/v1/embeddings",
    response_model=None,
    responses={
        200: {"model": EmbeddingList},
        "4XX": {"model": ErrorResponse},
        "5XX": {"model": ErrorResponse},
    },
)
async def create_embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts or token ids."""
    state = state_of(request)
    request_id = f"embd-{uuid.uuid4().hex}"
    headers = {REQUEST_ID_HEADER: request_id}
    state.model.adapter(body.model)
    note_unknown_fields(sorted(body.model_extra or {}), headers, strict=state.config.strict)
    encode = partial(
        encode_prompts, body.input, state.tokenizer, param="input", add_special_tokens=body.add_special_tokens
    )
    prompts = await asyncio.to_thread(encode)
    check_num_choices(len(prompts), 1, state.config.max_choices)
    outputs = await until_disconnect(
        request.receive, _embed_all(body, prompts, request, request_id=request_id)
    )
    answer = EmbeddingList(
        id=request_id,
        created=int(time.time()),
        model=state.model.name,
        data=[
            Embedding(index=index, embedding=_encoded(output.outputs.embedding, body))
            for index, output in enumerate(outputs)
        ],
        usage=_usage(outputs),
    )
    return Response(answer.model_dump_json(), headers=headers, media_type="application/json")


async def _embed_all(
    body: EmbeddingRequest, prompts: Sequence[EncodedPrompt], request: Request, *, request_id: str
) -> list[EmbeddingRequestOutput]:
    """All together; the first error ends the others."""
    engine, salt = state_of(request).engine, tenant_of(request).cache_salt(None)
    caller = caller_headers(request.headers)
    tasks = [
        asyncio.ensure_future(
            engine.embed(
                salted(prompt, salt),
                request_id=f"{request_id}-{index}",
                priority=body.priority,
                trace_headers=caller,
            )
        )
        for index, prompt in enumerate(prompts)
    ]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _encoded(embedding: Sequence[float], body: EmbeddingRequest) -> list[float] | str:
    if body.dimensions is not None and body.dimensions != len(embedding):
        raise InvalidRequestError(
            f"embeddings of this model have {len(embedding)} dimensions, not {body.dimensions}; leave "
            f"dimensions out",
            param="dimensions",
        )
    if body.encoding_format == "float":
        return list(embedding)
    numbers = array("f", embedding)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()


def _usage(outputs: Sequence[EmbeddingRequestOutput]) -> Usage:
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    num_cached = sum(output.num_cached_tokens for output in outputs)
    return Usage(
        prompt_tokens=num_tokens,
        completion_tokens=0,
        total_tokens=num_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=num_cached),
    )
