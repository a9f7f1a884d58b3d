"""`Detokenizer`: token ids to text, as many at a time as there are, never cutting a character in two."""

import codecs
from collections.abc import Iterable

from octavo.engine.tokenizer import Tokenizer


class Detokenizer:
    """Turns the output tokens of one request into text as they come.

    A character may be spread over several tokens: its bytes are held back until it is complete. Bytes
    that can belong to no character become U+FFFD exactly as ``bytes.decode("utf-8", "replace")`` puts
    them, so the pieces joined are the text of all the bytes joined, however the tokens were grouped.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._held = b""
        """The beginning of a character."""

    def append(self, token_ids: Iterable[int]) -> str:
        """The text that became certain with these tokens; often a word per token, sometimes nothing."""
        if self._skip_special_tokens:
            is_special = self._tokenizer.is_special
            token_ids = [token_id for token_id in token_ids if not is_special(token_id)]
        return self._decode(b"".join(map(self._tokenizer.token_bytes, token_ids)))

    def flush(self) -> str:
        """The end of the text: U+FFFD if a character was left incomplete, else nothing."""
        return self._decode(b"", is_last=True)

    def _decode(self, more: bytes, *, is_last: bool = False) -> str:
        text, num_read = codecs.utf_8_decode(self._held + more, "replace", is_last)
        self._held = (self._held + more)[num_read:]
        return text
