"""``/v1/chat/completions``: conversations, written out by the model's chat template."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from octavo.engine.prompt import EncodedPrompt, encode_chat, template_variables
from octavo.engine.tokenizer import ChatMessage
from octavo.errors import InvalidRequestError
from octavo.server.chat_reply import ChatReply
from octavo.server.generation import begin_call
from octavo.server.limits import check_num_choices
from octavo.server.protocol.chat import ChatCompletion, ChatCompletionRequest, ChatMessageParam
from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.tools import NamedToolChoice
from octavo.server.sampling import sampling_params
from octavo.server.state import ServerState
from octavo.server.tools.plan import ToolRequest, plan_answer

router = APIRouter(tags=["generation"])


@router.post(
    "/v1/chat/completions",
    response_model=None,
    responses={
        200: {"model": ChatCompletion, "description": "The answer; with `stream`, events of chunks"},
        "4XX": {"model": ErrorResponse},
        "5XX": {"model": ErrorResponse},
    },
)
async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
    """Answer a conversation."""
    call = begin_call(request, body, "chatcmpl")
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidRequestError("prompt_logprobs is not there with stream", param="prompt_logprobs")
    params = sampling_params(
        body,
        call.state.model.default_sampling_params,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        prompt_logprobs=body.prompt_logprobs,
    )
    plan = plan_answer(
        conversation(body.messages),
        tool_request(body),
        call.state.tokenizer,
        is_constrained=params.structured_outputs is not None,
    )
    if plan.structured_outputs is not None and params.structured_outputs is not None:
        raise InvalidRequestError(
            "tool_choice forces a call, which has a shape of its own; leave out what asks for another one",
            param="tool_choice",
        )
    check_num_choices(1, params.n, call.state.config.max_choices)
    prompt = await encode_messages(
        plan.messages,
        call.state,
        tools=plan.template_tools,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        chat_template_kwargs=body.chat_template_kwargs,
    )
    new_parser = partial(plan.new_parser, prompt.text or "") if plan.is_parsed else None
    return await call.respond(body, [prompt], plan.applied_to(params), ChatReply(call, body, new_parser))


def conversation(messages: Sequence[ChatMessageParam]) -> list[ChatMessage]:
    """The messages as the client sent them."""
    return [message.model_dump(exclude_unset=True) for message in messages]


def tool_request(body: ChatCompletionRequest) -> ToolRequest:
    """What a request says about tools."""
    choice = body.tool_choice
    return ToolRequest(
        tools=[tool.model_dump(exclude_unset=True) for tool in body.tools or ()],
        choice=choice if isinstance(choice, str) else None,
        named=choice.function.name if isinstance(choice, NamedToolChoice) else None,
        parallel=body.parallel_tool_calls is not False,
    )


async def encode_messages(
    messages: Sequence[ChatMessage],
    state: ServerState,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    chat_template_kwargs: Mapping[str, object] | None,
) -> EncodedPrompt:
    """Render and tokenize a conversation, in a thread: neither may hold up other requests.

    Raises:
        RequestError: a message is at fault.
    """
    variables: dict[str, Any] = template_variables(chat_template_kwargs, tools)
    return await asyncio.to_thread(
        encode_chat,
        messages,
        state.tokenizer,
        limit=state.text_limit,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        **variables,
    )
