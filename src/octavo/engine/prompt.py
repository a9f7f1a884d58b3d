"""Prompts as callers write them, under vLLM's names, and what the engine makes of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from octavo.engine.tokenizer import ChatMessage, Tokenizer
from octavo.errors import InvalidRequestError


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


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> EncodedPrompt:
    """Tokenize a prompt, unless that is done already.

    Raises:
        InvalidRequestError: it is neither text nor token ids.
    """
    if isinstance(prompt, str):
        return EncodedPrompt(tokenizer.encode(prompt), prompt)
    if not isinstance(prompt, dict):
        raise _not_a_prompt(f"a {type(prompt).__name__}")
    unknown = prompt.keys() - _KEYS
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
    **variables: object,
) -> EncodedPrompt:
    """Write a conversation out by the model's chat template and tokenize it.

    Args:
        messages: the conversation, oldest first.
        tokenizer: whose template it is.
        add_generation_prompt: end with the opening of the assistant's next turn.
        variables: further variables of the template.

    Raises:
        InvalidRequestError: the template refuses these messages, or the model has none.
    """
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, **variables)
    # The template writes the special tokens itself, BOS included.
    return EncodedPrompt(tokenizer.encode(text, add_special_tokens=False, parse_special=True), text)


def _not_a_prompt(got: str) -> InvalidRequestError:
    return InvalidRequestError(
        f'a prompt is a string, {{"prompt": text}} or {{"prompt_token_ids": ids}}, each with an optional '
        f"cache_salt; got {got}",
        param="prompt",
    )
