"""Prompts as they are typed, turned into token ids."""

import sys
from collections.abc import Sequence

from octavo.engine.tokenizer import ChatMessage, Tokenizer
from octavo.errors import InvalidRequestError


def read_prompts(prompts: Sequence[str]) -> list[str]:
    """The prompts of the command line, or all of stdin as one.

    Raises:
        InvalidRequestError: there is none.
    """
    if prompts:
        return list(prompts)
    if sys.stdin.isatty():
        raise InvalidRequestError('no prompt; give one, as in: octavo generate "What is a library?"')
    text = sys.stdin.read().strip()
    if not text:
        raise InvalidRequestError("no prompt; stdin is empty")
    return [text]


def chat_token_ids(tokenizer: Tokenizer, messages: Sequence[ChatMessage]) -> list[int]:
    """A conversation as token ids, ready for the assistant's next turn."""
    text = tokenizer.apply_chat_template(messages)
    return tokenizer.encode(text, add_special_tokens=False, parse_special=True)
