"""`ModelTokenizer`: a model's tokenizer, whatever file describes it, run by the `tokenizers` library."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.chat_template import ChatTemplate, compile_chat_template
from octavo.models.chat_templates import ChatTemplates
from octavo.models.literal_text import LiteralText
from octavo.models.quoting import one_line
from octavo.models.vocabulary import TokenType, Vocabulary

MAX_COMPILED_TEMPLATES = 8
"""Templates given with a conversation that are kept: a batch of conversations compiles its own once."""

_FROM_OUTSIDE = frozenset({"tools", "documents"})
"""Variables of a template that hold what other people wrote, as messages do."""


class Encoders(NamedTuple):
    """Two encoders over one model, which never change.

    That no text can name a control token is then a fact of construction and not of a flag that threads
    would share.
    """

    text: Tokenizer
    """Takes control tokens that are spelled out for text."""
    special: Tokenizer
    """Takes them for what they name, and removes the marks of `LiteralText`."""


class Surroundings(NamedTuple):
    """The tokens that the model wants around a whole text."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class ModelTokenizer:
    """Implements `octavo.engine.tokenizer.Tokenizer`; see there for what each method promises.

    Attributes:
        vocabulary: all tokens.
        encoders: what turns text into ids.
        chat_templates: the model's templates, or the one that replaces them.
        max_token_length: characters of the longest token's spelling. Those that are spelled as bytes or with
            marks stand for fewer, none for more.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoders: Encoders,
        *,
        bytes_of: Callable[[str, int], bytes],
        around: Surroundings,
        adds_space_prefix: bool,
        chat_templates: ChatTemplates,
    ) -> None:
        """Put the parts together.

        Args:
            vocabulary: all tokens.
            encoders: what turns text into ids.
            bytes_of: the bytes of an ordinary token, from its spelling and its `TokenType` number.
            around: what a whole text gets in front and behind.
            adds_space_prefix: whether a text gets a space in front, which decoding takes away again.
            chat_templates: the model's templates, or the one that replaces them.
        """
        self.chat_templates = chat_templates
        self.vocabulary = vocabulary
        self.max_token_length = max(map(len, vocabulary.tokens), default=0)
        self.encoders = encoders
        self._bytes_of = bytes_of
        self._around = around
        self._adds_space_prefix = adds_space_prefix
        self._literal = LiteralText(vocabulary.tokens[token_id] for token_id in vocabulary.special_ids)
        self._compiled = lru_cache(MAX_COMPILED_TEMPLATES)(self._compile)

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The template for conversations without tools; ``None`` if the model has none."""
        return self.chat_templates.default

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self.vocabulary.tokens)

    @property
    def bos_token_id(self) -> int | None:
        """The beginning-of-sequence token."""
        return self.vocabulary.bos_token_id

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every token that ends a text or a turn."""
        return self.vocabulary.end_ids

    @property
    def chat_template_source(self) -> str | None:
        """Text of the chat template."""
        return None if self.chat_template is None else self.chat_template.source

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """Turn text into token ids."""
        _check_encodable(text)
        token_ids = _ids(self.encoders.special if parse_special else self.encoders.text, text)
        if add_special_tokens:
            return [*self._around.before, *token_ids, *self._around.after]
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of a whole sequence."""
        parts = []
        for special, run in itertools.groupby(token_ids, self.is_special):
            if special and skip_special_tokens:
                continue
            part = b"".join(map(self.token_bytes, run))
            if self._adds_space_prefix and not special:
                part = part.removeprefix(b" ")
            parts.append(part)
        return b"".join(parts).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes one token stands for."""
        if not 0 <= token_id < len(self.vocabulary.tokens):
            raise InvalidRequestError(
                f"token id {token_id} does not exist; the vocabulary has ids 0 to {self.vocab_size - 1}"
            )
        token, kind = self.vocabulary.tokens[token_id], self.vocabulary.types[token_id]
        if kind == TokenType.USER_DEFINED or token_id in self.vocabulary.special_ids:
            return token.encode()
        return self._bytes_of(token, kind)

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token."""
        return token_id in self.vocabulary.special_ids

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        **variables: object,
    ) -> str:
        """Render a conversation as the text the model was trained on.

        Control tokens that the messages, tools or documents spell are marked as text (see `LiteralText`);
        `encode` with ``parse_special`` heeds and removes the marks.
        """
        template = self._template(chat_template, has_tools=bool(variables.get("tools")))
        for name in _FROM_OUTSIDE & variables.keys():
            variables[name] = self._literal.mark(variables[name])
        return template.render(
            self._literal.mark(messages), add_generation_prompt=add_generation_prompt, variables=variables
        )

    def _template(self, name_or_source: str | None, *, has_tools: bool) -> ChatTemplate:
        if name_or_source is None:
            return self.chat_templates.choose(has_tools=has_tools)
        return self.chat_templates.by_name.get(name_or_source) or self._compiled(name_or_source)

    def _compile(self, source: str) -> ChatTemplate:
        try:
            return compile_chat_template(source, self.vocabulary, origin="chat_template")
        except ModelLoadError as error:  # not the model's fault but the caller's
            raise InvalidRequestError(str(error), param="chat_template") from None


def _ids(encoder: Tokenizer, text: str) -> list[int]:
    try:
        token_ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
    except (KeyboardInterrupt, SystemExit):
        raise
    except (
        BaseException
    ) as error:  # a panic of the library, as over a pattern that does not end, is no Exception
        raise InvalidRequestError(
            f"the model's tokenizer fails on this text: {one_line(str(error))}", param="prompt"
        ) from None
    return token_ids


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X} at position {error.start:,}"
        raise InvalidRequestError(f"the text holds a lone surrogate ({found}); send valid Unicode") from None
