"""Prompts as callers write them, under vLLM's names, and what the engine makes of them."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from octavo.diagnostics import shown
from octavo.engine.text_limit import TextLimit
from octavo.engine.tokenizer import LITERAL_MARK, ChatMessage, Tokenizer
from octavo.errors import InvalidRequestError, UnsupportedFeatureError


class TextPrompt(TypedDict):
    """A prompt to tokenize."""

    prompt: str
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    """A prompt that is tokenized already."""

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]
    """The text that it came from, to be returned with the output."""
    cache_salt: NotRequired[str]


Prompt = str | TextPrompt | TokensPrompt


class EncodedPrompt(NamedTuple):
    """A prompt as the engine takes it."""

    token_ids: Sequence[int]
    text: str | None = None
    cache_salt: str | None = None
    """Only requests with the same salt share cached blocks."""


_KEYS = frozenset({"prompt", "prompt_token_ids", "cache_salt"})
_LACKING_KEYS = frozenset(
    {
        "multi_modal_data", "multi_modal_uuids", "mm_processor_kwargs", "prompt_embeds",
        "encoder_prompt", "decoder_prompt", "token_type_ids",
    }
)  # fmt: skip
"""What prompts of vLLM may hold and prompts here may not."""
_TAKEN_VARIABLES = frozenset(
    {
        "self", "tokenizer", "messages", "add_generation_prompt", "continue_final_message", "chat_template",
        "limit",
    }
)  # fmt: skip
"""Names that no further variable of a template can have."""


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> EncodedPrompt:
    """Tokenize a prompt, unless that is done already.

    Raises:
        InvalidRequestError: it is neither text nor token ids.
        UnsupportedFeatureError: it is an image, embeddings or something else that vLLM would take.
    """
    if isinstance(prompt, str):
        return EncodedPrompt(tokenizer.encode(prompt), prompt)
    if not isinstance(prompt, dict):
        raise _not_a_prompt(f"a {type(prompt).__name__}")
    unknown = prompt.keys() - _KEYS
    if lacking := unknown & _LACKING_KEYS:
        raise UnsupportedFeatureError(
            f"{', '.join(sorted(lacking))} is not supported: a prompt is text or token ids; leave it out"
        )
    if unknown:
        raise _not_a_prompt(f"the keys {', '.join(sorted(map(str, unknown)))}")
    parts: dict[str, Any] = {**prompt}
    text, token_ids = parts.get("prompt"), parts.get("prompt_token_ids")
    if not isinstance(text, str | None) or (text is None and token_ids is None):
        raise _not_a_prompt("neither" if text is None else f"a prompt that is a {type(text).__name__}")
    return EncodedPrompt(
        tokenizer.encode(text or "") if token_ids is None else token_ids, text, parts.get("cache_salt")
    )


def encode_chat(
    messages: Sequence[ChatMessage],
    tokenizer: Tokenizer,
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    chat_template: str | None = None,
    limit: TextLimit | None = None,
    **variables: object,
) -> EncodedPrompt:
    """Write a conversation out by a chat template and tokenize it.

    Args:
        messages: the conversation, oldest first.
        tokenizer: whose template it is, unless ``chat_template`` is given.
        add_generation_prompt: end with the opening of the assistant's next turn.
        continue_final_message: end with the text of the last message, for the model to go on with it.
        chat_template: jinja2 text to use instead of the model's own template.
        limit: of the text that is made of the conversation; none if omitted.
        variables: further variables of the template.

    Raises:
        InvalidRequestError: a message lacks its role or content, the template refuses these messages, or the
            model has none.
        ContextLengthError: the text is too long to be tokenized at all.
        UnsupportedFeatureError: a message holds something other than text.
    """
    messages = [_with_text(message, index) for index, message in enumerate(messages)]
    if continue_final_message and add_generation_prompt:
        raise InvalidRequestError(
            "continue_final_message and add_generation_prompt exclude each other; set one of them to False",
            param="continue_final_message",
        )
    end_mark = f" {uuid.uuid4().hex}" if continue_final_message else ""
    text = tokenizer.apply_chat_template(
        _marked(messages, end_mark) if end_mark else messages,
        add_generation_prompt=add_generation_prompt,
        chat_template=chat_template,
        **variables,
    )
    if end_mark:
        text = _up_to(end_mark, text)
    if limit is not None:
        limit.check(text, param="messages")
    # The template writes the special tokens itself, BOS included.
    token_ids = tokenizer.encode(text, add_special_tokens=False, parse_special=True)
    return EncodedPrompt(token_ids, text.replace(LITERAL_MARK, ""))


def list_prompts(prompts: object) -> list[Prompt]:
    """One prompt, or each of several, as a list; what they hold is checked when they are encoded.

    Raises:
        InvalidRequestError: it is neither.
    """
    if isinstance(prompts, str | Mapping):
        return [prompts]  # type: ignore[list-item]  # the keys are checked later
    if isinstance(prompts, bytes) or not isinstance(prompts, Iterable):
        raise _not_a_prompt(f"a {type(prompts).__name__}")
    return list(prompts)


def list_conversations(messages: object) -> list[list[ChatMessage]]:
    """One conversation is a list of messages, several are a list of lists.

    Raises:
        InvalidRequestError: it is neither, or a conversation is empty.
    """
    items = _listed(messages)
    if all(isinstance(item, Mapping) for item in items):
        items = [items]
    conversations = [_listed(item) for item in items]
    if not all(conversations):
        raise InvalidRequestError("a conversation needs at least one message", param="messages")
    return conversations


def template_variables(chat_template_kwargs: object, tools: object) -> dict[str, Any]:
    """What a caller gives a chat template beside the conversation.

    Raises:
        InvalidRequestError: they are no names with values, or name what is an argument of its own.
    """
    variables = {} if chat_template_kwargs is None else chat_template_kwargs
    if not isinstance(variables, Mapping) or not all(isinstance(name, str) for name in variables):
        raise InvalidRequestError(
            f"chat_template_kwargs must map names to values, got {shown(variables)}",
            param="chat_template_kwargs",
        )
    if taken := _TAKEN_VARIABLES & variables.keys():
        raise InvalidRequestError(
            f"chat_template_kwargs must not hold {', '.join(sorted(taken))}: the engine sets that itself, or "
            f"it is an argument of its own",
            param="chat_template_kwargs",
        )
    return {**variables, **({} if tools is None else {"tools": tools})}


def _listed(messages: object) -> list[Any]:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequestError(
            f'a conversation is a list of messages as in {{"role": "user", "content": "Hello"}}, '
            f"got a {type(messages).__name__}",
            param="messages",
        )
    return list(messages)


def _with_text(message: object, index: int) -> ChatMessage:
    """The message, its text in one piece: most templates take no parts."""
    if not isinstance(message, Mapping):
        raise InvalidRequestError(
            f'a message is a mapping as in {{"role": …, "content": …}}, got a {type(message).__name__}',
            param="messages",
        )
    # A turn that only calls tools says nothing.
    needed = ("role",) if message.get("tool_calls") else ("role", "content")
    for key in needed:
        if message.get(key) is None:
            raise InvalidRequestError(
                f'messages[{index}] has no {key}; a message is a mapping as in {{"role": …, "content": …}}',
                param="messages",
            )
    content = message.get("content")
    return {**message, "content": _joined(content, index)} if isinstance(content, list) else message


def _joined(parts: list[Any], index: int) -> str | list[Any]:
    """Parts of text as one text; parts without a type are the template's business."""
    kinds = [part.get("type") if isinstance(part, Mapping) else None for part in parts]
    for kind in kinds:
        if kind not in (None, "text"):
            raise UnsupportedFeatureError(
                f"messages[{index}] holds a part of type {shown(kind)}; only text is supported"
            )
    if None in kinds:
        return parts
    texts = [part.get("text") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError(
            f'messages[{index}] holds a part without a text; a part is {{"type": "text", "text": …}}',
            param="messages",
        )
    return "\n".join(texts)


def _marked(messages: Sequence[ChatMessage], mark: str) -> list[ChatMessage]:
    """The conversation with a mark at the end of its last message.

    To look for the message itself in the rendered text could find it too late: a template's own words may
    contain it.
    """
    *earlier, last = messages
    if not isinstance(last.get("content"), str):
        raise InvalidRequestError(
            "continue_final_message needs a last message whose content is text", param="messages"
        )
    return [*earlier, {**last, "content": last["content"] + mark}]


def _up_to(mark: str, text: str) -> str:
    before, found, _ = text.rpartition(mark)
    if not found:
        raise InvalidRequestError(
            "the chat template leaves out the end of the last message, so it cannot be continued",
            param="continue_final_message",
        )
    return before


def _not_a_prompt(got: str) -> InvalidRequestError:
    return InvalidRequestError(
        f'a prompt is a string, {{"prompt": text}} or {{"prompt_token_ids": ids}}, each with an optional '
        f"cache_salt; got {got}",
        param="prompt",
    )
