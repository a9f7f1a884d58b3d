"""`TextLimit`: the longest text that is worth tokenizing, which for a hostile one takes long."""

from typing import NamedTuple

from octavo.errors import ContextLengthError


class TextLimit(NamedTuple):
    """A text with more characters than this cannot fit the context, whatever its tokens are."""

    max_model_len: int
    """Longest sequence [tokens]."""
    max_token_length: int
    """Of the longest token [characters]."""

    @property
    def max_length(self) -> int:
        """Of a text [characters]."""
        return self.max_model_len * self.max_token_length

    def check(self, text: str, *, param: str) -> None:
        """Refuse a text before anything is done with it.

        Raises:
            ContextLengthError: it is too long; ``param`` names where it comes from.
        """
        if len(text) > self.max_length:
            raise ContextLengthError(
                f"the text has {len(text)} characters, but this model's maximum context length is "
                f"{self.max_model_len} tokens, prompt and output together (max_model_len), which are at most "
                f"{self.max_length} characters; shorten it",
                param=param,
            )
