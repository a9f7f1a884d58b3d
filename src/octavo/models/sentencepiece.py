"""SentencePiece-style BPE (GGUF's ``llama``): scores for merges, ▁ for a space, bytes as a fallback."""

import re

import numpy as np
import numpy.typing as npt
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer, Prepend, Replace, Sequence

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.tokenizer_scheme import TokenizerScheme
from octavo.models.vocabulary import TokenType, Vocabulary

_SPACE_MARK = "▁"
_LONGEST_TOKEN = 1024
_MOST_MERGE_CHARACTERS = 100_000_000
"""Ten times what vocabularies of 262,144 tokens need."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def sentencepiece_scheme(vocabulary: Vocabulary, metadata: Metadata) -> TokenizerScheme:
    """Build the scheme from the tokens' scores.

    Raises:
        ModelLoadError: there are no scores, or the tokens are too long to be cut in every way.
    """
    scores = metadata.array("tokenizer.ggml.scores", length=len(vocabulary.tokens))
    if scores is None:
        raise ModelLoadError(f"{metadata.path}: the vocabulary has no scores (tokenizer.ggml.scores)")
    _check_lengths(vocabulary, metadata)
    adds_space_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", default=True)
    unknown = vocabulary.unknown_token_id
    model = BPE(
        vocab=dict(zip(vocabulary.tokens, range(len(vocabulary.tokens)), strict=True)),
        merges=merges_from_scores(vocabulary, scores),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    return TokenizerScheme(
        model=model,
        normalizer=_normalizer(adds_space_prefix=adds_space_prefix),
        pre_tokenizer=None,
        bytes_of=sentencepiece_bytes,
        adds_bos=True,
        adds_space_prefix=adds_space_prefix,
    )


def _check_lengths(vocabulary: Vocabulary, metadata: Metadata) -> None:
    """Each token is cut at each of its characters, which takes time and memory by its length squared."""
    num_characters = 0
    for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if kind != TokenType.NORMAL:
            continue
        if len(token) > _LONGEST_TOKEN:
            raise ModelLoadError(
                f"{metadata.path}: token {quote(token)} has {len(token):,} characters; at most"
                f" {_LONGEST_TOKEN:,} are supported"
            )
        num_characters += len(token) ** 2
    if num_characters > _MOST_MERGE_CHARACTERS:
        raise ModelLoadError(
            f"{metadata.path}: the merges of the vocabulary can have {num_characters:,} characters; at most"
            f" {_MOST_MERGE_CHARACTERS:,} are supported"
        )


def merges_from_scores(
    vocabulary: Vocabulary,
    scores: npt.NDArray[np.generic],  # [vocab_size]
) -> list[tuple[str, str]]:
    """The merge list that does what merging by score does.

    SentencePiece joins the neighbours whose joint token has the highest score, the leftmost first. The
    rank of a pair is therefore that of the token it makes, and every way to cut a token is a merge.
    """
    pieces = {
        token
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind == TokenType.NORMAL
    }
    merges = []
    for token_id in np.argsort(-scores.astype(np.float64), kind="stable").tolist():
        token = vocabulary.tokens[token_id]
        if vocabulary.types[token_id] != TokenType.NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in pieces and right in pieces:
                merges.append((left, right))
    return merges


def _normalizer(*, adds_space_prefix: bool) -> Normalizer:
    mark_spaces = Replace(" ", _SPACE_MARK)
    return Sequence([Prepend(_SPACE_MARK), mark_spaces]) if adds_space_prefix else mark_spaces


def sentencepiece_bytes(token: str, token_type: int) -> bytes:
    """The bytes of a piece, or of a token that stands for one byte."""
    if token_type == TokenType.BYTE and (match := _BYTE_TOKEN.fullmatch(token)):
        return bytes.fromhex(match[1])
    return token.replace(_SPACE_MARK, " ").encode()
