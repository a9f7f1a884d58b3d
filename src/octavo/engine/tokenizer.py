"""`Tokenizer`: text to token ids and back. What implements it lives in `octavo.models`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

ChatMessage = Mapping[str, Any]
"""One turn of a conversation: at least ``role`` and ``content``, as the chat template expects them."""


LITERAL_MARK = "\ufdd0"
"""Breaks up control tokens spelled in a message when a chat is rendered; no part of the text."""


class Tokenizer(Protocol):
    """Text to token ids and back. Safe to use from several threads at once."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids; every id is in ``range(vocab_size)``."""
        ...

    @property
    def max_token_length(self) -> int:
        """The most characters of a text that one token stands for."""
        ...

    @property
    def bos_token_id(self) -> int | None:
        """The beginning-of-sequence token, whether or not `encode` adds it."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every token that ends a text or a turn."""
        ...

    @property
    def chat_template_source(self) -> str | None:
        """Text of the chat template that `apply_chat_template` renders; ``None`` if there is none."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """Turn text into token ids.

        Args:
            text: any text; special tokens written out in it are ordinary text unless ``parse_special``.
            add_special_tokens: put the tokens around the text that the model wants there (one BOS).
            parse_special: take ``<|im_start|>`` and the like as the control tokens they name. For text
                that a chat template rendered, together with ``add_special_tokens=False``.

        Raises:
            InvalidRequestError: the text holds a lone surrogate, which no encoding can carry.
        """
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of a whole sequence; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InvalidRequestError: an id is not in ``range(vocab_size)``.
        """
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes one token stands for; a special token's name, encoded.

        A character may be spread over several tokens, so these bytes alone need not be UTF-8.

        Raises:
            InvalidRequestError: the id is not in ``range(vocab_size)``.
        """
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token, which is not part of the text shown to a user."""
        ...

    def apply_chat_template(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        **variables: object,
    ) -> str:
        """Render a conversation as the text the model was trained on, to be encoded with ``parse_special``.

        Control tokens spelled in a message are broken up by `LITERAL_MARK`, so that they stay text.

        Args:
            messages: the conversation, oldest first.
            add_generation_prompt: end with the opening of the assistant's next turn.
            chat_template: jinja2 text to use instead of the model's own template, or the name of one of the
                model's own.
            variables: further variables of the template, such as ``tools``.

        Raises:
            InvalidRequestError: the template refuses these messages, is none, or the model has none.
        """
        ...
