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
from octavo.errors import InvalidRequestError, OctavoError
from octavo.outputs import EmbeddingRequestOutput
from octavo.server.disconnect import until_disconnect
from octavo.server.generation import end_siblings, salted
from octavo.server.limits import check_num_choices
from octavo.server.observation import REQUEST_ID_HEADER, caller_headers
from octavo.server.prompts import encode_inputs, list_inputs
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
    inputs = list_inputs(body.input, param="input")
    check_num_choices(len(inputs), 1, state.config.max_choices)
    encode = partial(
        encode_inputs,
        inputs,
        state.tokenizer,
        limit=state.text_limit,
        param="input",
        add_special_tokens=body.add_special_tokens,
    )
    prompts = await asyncio.to_thread(encode)
    outputs = await until_disconnect(
        request.receive, _embed_all(body, prompts, request, request_id=request_id)
    )
    answer = partial(_answer, outputs, body, request_id=request_id, model=state.model.name)
    # In a thread: a thousand embeddings are a million numbers to write out.
    return Response(await asyncio.to_thread(answer), headers=headers, media_type="application/json")


async def _embed_all(
    body: EmbeddingRequest, prompts: Sequence[EncodedPrompt], request: Request, *, request_id: str
) -> list[EmbeddingRequestOutput]:
    """All together; the first error ends the others."""
    engine, tenant = state_of(request).engine, tenant_of(request)
    caller = caller_headers(request.headers)
    names = [f"{request_id}-{index}" for index in range(len(prompts))]
    tasks = [
        asyncio.ensure_future(
            engine.embed(
                salted(prompt, tenant.cache_salt(None)),
                request_id=name,
                priority=body.priority,
                tenant=tenant.name,
                trace_headers=caller,
            )
        )
        for name, prompt in zip(names, prompts, strict=True)
    ]
    try:
        return await asyncio.gather(*tasks)
    except OctavoError:
        await end_siblings(engine, names)
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _answer(
    outputs: Sequence[EmbeddingRequestOutput], body: EmbeddingRequest, *, request_id: str, model: str
) -> str:
    """The JSON text of the answer."""
    data = [
        Embedding(index=index, embedding=_encoded(output.outputs.embedding, body))
        for index, output in enumerate(outputs)
    ]
    return EmbeddingList(
        id=request_id, created=int(time.time()), model=model, data=data, usage=_usage(outputs)
    ).model_dump_json()


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
