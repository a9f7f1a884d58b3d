"""Prompts as they are typed or piped."""

import sys
from collections.abc import Sequence

from octavo.errors import ConfigError


def read_prompts(prompts: Sequence[str]) -> list[str]:
    """The prompts of the command line, or all of stdin as one.

    Raises:
        ConfigError: there is none.
    """
    if prompts:
        return list(prompts)
    if sys.stdin.isatty():
        raise ConfigError('no prompt; give one, as in: octavo generate "What is a library?"')
    text = sys.stdin.read().strip()
    if not text:
        raise ConfigError("no prompt; stdin is empty")
    return [text]
