"""The tokenizer that a GGUF file describes."""

from collections.abc import Sequence, Set
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Normalizer, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence

from octavo.errors import ModelLoadError
from octavo.models.byte_level_bpe import byte_level_scheme
from octavo.models.chat_templates import compile_chat_templates, gguf_template_sources
from octavo.models.gguf_metadata import Metadata
from octavo.models.literal_text import MARK
from octavo.models.model_tokenizer import Encoders, ModelTokenizer, Surroundings
from octavo.models.quoting import quote
from octavo.models.sentencepiece import sentencepiece_scheme
from octavo.models.tokenizer_scheme import TokenizerScheme
from octavo.models.unigram import unigram_scheme
from octavo.models.vocabulary import TokenType, Vocabulary, read_vocabulary

_SCHEMES = {"gpt2": byte_level_scheme, "llama": sentencepiece_scheme, "t5": unigram_scheme}
_NOT_STRIPPING = ("<unk>", "<s>", "<|endoftext|>")
"""Of Phi 3's control tokens."""


def build_tokenizer(metadata: Metadata, *, chat_template: Path | None = None) -> ModelTokenizer:
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
    scheme = build_scheme(vocabulary, metadata)
    return ModelTokenizer(
        vocabulary,
        _encoders(vocabulary, scheme, stripping=_stripping_ids(vocabulary, metadata)),
        bytes_of=scheme.bytes_of,
        around=_surroundings(vocabulary, scheme, metadata),
        adds_space_prefix=scheme.adds_space_prefix,
        chat_templates=compile_chat_templates(
            gguf_template_sources(metadata), vocabulary, replacement=chat_template
        ),
    )


def _surroundings(vocabulary: Vocabulary, scheme: TokenizerScheme, metadata: Metadata) -> Surroundings:
    adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", default=scheme.adds_bos)
    adds_eos = metadata.flag("tokenizer.ggml.add_eos_token", default=scheme.adds_eos)
    bos, eos = vocabulary.bos_token_id, vocabulary.eos_token_id
    return Surroundings(
        before=(bos,) if adds_bos and bos is not None else (),
        after=(eos,) if adds_eos and eos is not None else (),
    )


def _stripping_ids(vocabulary: Vocabulary, metadata: Metadata) -> frozenset[int]:
    """Control tokens that swallow white space behind them: Phi 3's, of whom its files do not say so."""
    if (metadata.text("general.architecture"), metadata.text("tokenizer.ggml.model")) != ("phi3", "llama"):
        return frozenset()
    return frozenset(i for i in vocabulary.special_ids if vocabulary.tokens[i] not in _NOT_STRIPPING)


def _encoders(vocabulary: Vocabulary, scheme: TokenizerScheme, *, stripping: Set[int]) -> Encoders:
    special = _encoder(vocabulary, scheme, remove_marks=True)
    special.add_special_tokens(_added(vocabulary, sorted(vocabulary.special_ids), stripping))
    return Encoders(_encoder(vocabulary, scheme), special)


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


def _added(
    vocabulary: Vocabulary, token_ids: Sequence[int], stripping: Set[int] = frozenset()
) -> list[AddedToken]:
    return [
        AddedToken(vocabulary.tokens[token_id], normalized=False, rstrip=token_id in stripping)
        for token_id in token_ids
    ]
