"""Byte-level BPE (GGUF's ``gpt2``): the file's merges over an alphabet of 256 printable characters.

Some vocabularies lack tokens for bytes that their training text never held (SmolLM2 has none for 21 of
them, among them a few control characters). Such bytes are dropped, as the models' own tokenizers do.
"""

from tokenizers import Regex
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.tokenizer_patterns import WORD_SPLITS, WordSplit
from octavo.models.tokenizer_scheme import TokenizerScheme
from octavo.models.vocabulary import Vocabulary

# Printable characters that do not count as white space stand for themselves; every other byte is written
# as one of the characters from U+0100 on, in the order of the bytes.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_UNPRINTABLE = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + index): byte for index, byte in enumerate(_UNPRINTABLE)
}


def byte_level_scheme(vocabulary: Vocabulary, metadata: Metadata) -> TokenizerScheme:
    """Build the scheme from the file's merges and the name of its word split.

    Raises:
        ModelLoadError: no merges, a malformed merge, or a word split that is not known.
    """
    split = _word_split(metadata)
    model = BPE(
        vocab=dict(zip(vocabulary.tokens, range(len(vocabulary.tokens)), strict=True)),
        merges=_read_merges(vocabulary, metadata),
        ignore_merges=split.whole_words,
    )
    return TokenizerScheme(
        model=model,
        normalizer=NFC() if split.composes else None,
        pre_tokenizer=pre_tokenizer(split),
        bytes_of=byte_level_bytes,
        adds_bos=split.adds_bos,
        adds_space_prefix=False,
    )


def _word_split(metadata: Metadata) -> WordSplit:
    name = metadata.text("tokenizer.ggml.pre") or "default"
    split = WORD_SPLITS.get(name)
    if split is None:
        raise ModelLoadError(
            f"{metadata.path}: pre-tokenizer {quote(name)} is not one of the {len(WORD_SPLITS)} known ones;"
            " use the model's Hugging Face folder, which says itself how words are cut"
        )
    return split


def _read_merges(vocabulary: Vocabulary, metadata: Metadata) -> list[tuple[str, str]]:
    lines = metadata.texts("tokenizer.ggml.merges")
    if lines is None:
        raise ModelLoadError(f"{metadata.path}: the BPE vocabulary has no merges (tokenizer.ggml.merges)")
    tokens = set(vocabulary.tokens)
    merges = []
    for line in lines:
        left, _, right = line.partition(" ")
        if left not in tokens or right not in tokens or left + right not in tokens:
            raise ModelLoadError(f"{metadata.path}: merge {quote(line)} joins or makes an unknown token")
        merges.append((left, right))
    return merges


def pre_tokenizer(split: WordSplit) -> PreTokenizer:
    """Cuts text into words, and writes each byte of them as its character of the alphabet."""
    cuts: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in split.patterns]
    return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level_bytes(token: str, _: int) -> bytes:
    """The bytes of a token written in the byte alphabet."""
    try:
        return bytes([_BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:  # not written in the byte alphabet: it can only stand for itself
        return token.encode()
