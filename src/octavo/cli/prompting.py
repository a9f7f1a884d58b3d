"""Prompts as they are typed or piped."""

import sys
from collections.abc import Sequence

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
