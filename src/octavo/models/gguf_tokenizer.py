"""`GGUFTokenizer`: the tokenizer that a GGUF file describes, run by the `tokenizers` library."""

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Normalizer, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.byte_level_bpe import byte_level_scheme
from octavo.models.chat_template import ChatTemplate, compile_chat_template, read_chat_template
from octavo.models.gguf_metadata import Metadata
from octavo.models.literal_text import MARK, LiteralText
from octavo.models.quoting import quote
from octavo.models.sentencepiece import sentencepiece_scheme
from octavo.models.tokenizer_scheme import TokenizerScheme
from octavo.models.vocabulary import TokenType, Vocabulary, read_vocabulary

MAX_COMPILED_TEMPLATES = 8
"""Templates given with a conversation that are kept: a batch of conversations compiles its own once."""

_FROM_OUTSIDE = frozenset({"tools", "documents"})
"""Variables of a template that hold what other people wrote, as messages do."""

_SCHEMES = {"gpt2": byte_level_scheme, "llama": sentencepiece_scheme}


class GGUFTokenizer:
    """Implements `octavo.engine.tokenizer.Tokenizer`; see there for what each method promises."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        scheme: TokenizerScheme,
        metadata: Metadata,
        chat_template: ChatTemplate | None,
    ) -> None:
        self.chat_template = chat_template
        self._vocabulary = vocabulary
        self._scheme = scheme
        self._adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", default=scheme.adds_bos)
        self._adds_eos = metadata.flag("tokenizer.ggml.add_eos_token", default=False)
        # Two encoders over one model: that no text can name a control token is then a fact of
        # construction and not of a flag that threads would share.
        self._text_encoder = _encoder(vocabulary, scheme)
        self._special_encoder = _encoder(vocabulary, scheme, remove_marks=True)
        self._special_encoder.add_special_tokens(_added(vocabulary, sorted(vocabulary.special_ids)))
        self._literal = LiteralText(vocabulary.tokens[token_id] for token_id in vocabulary.special_ids)
        self._compiled = lru_cache(MAX_COMPILED_TEMPLATES)(self._compile)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._vocabulary.tokens)

    @property
    def bos_token_id(self) -> int | None:
        """The beginning-of-sequence token."""
        return self._vocabulary.bos_token_id

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every token that ends a text or a turn."""
        return self._vocabulary.end_ids

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False) -> list[int]:
        """Turn text into token ids."""
        encoder = self._special_encoder if parse_special else self._text_encoder
        _check_encodable(text)
        token_ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        if add_special_tokens:
            bos, eos = self._vocabulary.bos_token_id, self._vocabulary.eos_token_id
            if self._adds_bos and bos is not None:
                token_ids.insert(0, bos)
            if self._adds_eos and eos is not None:
                token_ids.append(eos)
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of a whole sequence."""
        parts = []
        for special, run in itertools.groupby(token_ids, self.is_special):
            if special and skip_special_tokens:
                continue
            part = b"".join(map(self.token_bytes, run))
            if self._scheme.adds_space_prefix and not special:
                part = part.removeprefix(b" ")
            parts.append(part)
        return b"".join(parts).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes one token stands for."""
        if not 0 <= token_id < len(self._vocabulary.tokens):
            raise InvalidRequestError(
                f"token id {token_id} does not exist; the vocabulary has ids 0 to {self.vocab_size - 1}"
            )
        token, kind = self._vocabulary.tokens[token_id], self._vocabulary.types[token_id]
        if kind == TokenType.USER_DEFINED or token_id in self._vocabulary.special_ids:
            return token.encode()
        return self._scheme.bytes_of(token, kind)

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control token."""
        return token_id in self._vocabulary.special_ids

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
        template = self.chat_template if chat_template is None else self._compiled(chat_template)
        if template is None:
            raise InvalidRequestError(
                "the model has no chat template: give one with --chat-template FILE, or send a plain prompt"
            )
        for name in _FROM_OUTSIDE & variables.keys():
            variables[name] = self._literal.mark(variables[name])
        return template.render(
            self._literal.mark(messages), add_generation_prompt=add_generation_prompt, variables=variables
        )

    def _compile(self, source: str) -> ChatTemplate:
        try:
            return compile_chat_template(source, self._vocabulary, origin="chat_template")
        except ModelLoadError as error:  # not the model's fault but the caller's
            raise InvalidRequestError(str(error), param="chat_template") from None


def build_tokenizer(metadata: Metadata, *, chat_template: Path | None = None) -> GGUFTokenizer:
    """Make the tokenizer that a file's metadata describes.

    Args:
        metadata: the file's key-value section.
        chat_template: a jinja2 file that replaces the model's own template.

    Raises:
        ModelLoadError: the vocabulary or template is malformed, or of a kind that is not supported.
    """
    kind = metadata.text("tokenizer.ggml.model")
    build_scheme = _SCHEMES.get(kind or "")
    if build_scheme is None:
        known = ", ".join(f"{name!r}" for name in _SCHEMES)
        raise ModelLoadError(
            f"{metadata.path}: tokenizer kind {quote(kind)} is not supported; known are {known}"
        )
    vocabulary = read_vocabulary(metadata)
    template = read_chat_template(metadata, vocabulary, replacement=chat_template)
    return GGUFTokenizer(vocabulary, build_scheme(vocabulary, metadata), metadata, template)


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X} at position {error.start:,}"
        raise InvalidRequestError(f"the text holds a lone surrogate ({found}); send valid Unicode") from None


def _encoder(vocabulary: Vocabulary, scheme: TokenizerScheme, *, remove_marks: bool = False) -> Tokenizer:
    encoder = Tokenizer(scheme.model)
    if normalizer := _normalizer(scheme, remove_marks=remove_marks):
        encoder.normalizer = normalizer
    if scheme.pre_tokenizer is not None:
        encoder.pre_tokenizer = scheme.pre_tokenizer
    encoder.add_tokens(_added(vocabulary, vocabulary.ids_of(TokenType.USER_DEFINED)))
    return encoder


def _normalizer(scheme: TokenizerScheme, *, remove_marks: bool) -> Normalizer | None:
    """What runs over the text between control tokens: the marks of `LiteralText` have done their work."""
    if not remove_marks:
        return scheme.normalizer
    remove = Replace(MARK, "")
    return remove if scheme.normalizer is None else NormalizerSequence([remove, scheme.normalizer])


def _added(vocabulary: Vocabulary, token_ids: Sequence[int]) -> list[AddedToken]:
    return [AddedToken(vocabulary.tokens[token_id], normalized=False) for token_id in token_ids]
