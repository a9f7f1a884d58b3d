"""The tokenizer that a Hugging Face folder describes in ``tokenizer.json``.

The file is a program of the `tokenizers` library: its model, normaliser and pre-tokeniser are used as they
stand, so that ids are those of every other reader. Its added tokens are added anew, twice (see `Encoders`),
and what a token's bytes are is told from its decoder.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Normalizer, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence

from octavo.errors import ModelLoadError
from octavo.models.byte_level_bpe import byte_level_bytes
from octavo.models.chat_templates import compile_chat_templates
from octavo.models.huggingface_tokens import TokenizerConfig
from octavo.models.json_document import read_json_file
from octavo.models.literal_text import MARK
from octavo.models.model_tokenizer import Encoders, ModelTokenizer, Surroundings
from octavo.models.quoting import one_line, quote
from octavo.models.sentencepiece import sentencepiece_bytes
from octavo.models.tokenizer_json_check import check_tokenizer_json
from octavo.models.vocabulary import END_TOKENS, TokenType, Vocabulary

_MAX_BYTES = 64 << 20
"""Twice the tokenizer of Gemma 3, whose vocabulary is the largest."""
_PROBE = "a"


class _Decoding(NamedTuple):
    """How tokens become bytes."""

    bytes_of: Callable[[str, int], bytes]
    adds_space_prefix: bool


def build_json_tokenizer(
    folder: Path, *, vocab_size: int, end_ids: Iterable[int] = (), chat_template: Path | None = None
) -> ModelTokenizer:
    """Make the tokenizer of a folder.

    Args:
        folder: with ``tokenizer.json``, and perhaps ``tokenizer_config.json`` and chat templates.
        vocab_size: rows of the model's output head: often some more than there are tokens.
        end_ids: tokens that end a text or a turn, from the model's other files.
        chat_template: a jinja2 file that replaces the model's own templates.

    Raises:
        ModelLoadError: a file is missing or malformed, or asks for something that is not supported.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelLoadError(
            f"{path}: no such file; other forms of tokenizers are not read; save_pretrained of"
            " transformers writes this one"
        )
    document = read_json_file(path, max_bytes=_MAX_BYTES)
    check_tokenizer_json(document, path)
    config = TokenizerConfig(folder)
    base = _load(document, path)
    added = _added_tokens(document, path, vocab_size=vocab_size)
    vocabulary = _vocabulary(base, added, config, path=path, vocab_size=vocab_size, end_ids=end_ids)
    decoding = _decoding(document, path)
    return ModelTokenizer(
        vocabulary,
        Encoders(_encoder(base, added), _encoder(base, added, special=True)),
        bytes_of=decoding.bytes_of,
        around=_surroundings(base, vocabulary, config, path),
        adds_space_prefix=decoding.adds_space_prefix,
        chat_templates=compile_chat_templates(
            config.template_sources(), vocabulary, replacement=chat_template
        ),
    )


def _load(document: Mapping[str, object], path: Path) -> Tokenizer:
    """The library's own object, without the added tokens; encoding is never random."""
    wanted = {**document, "added_tokens": [], "truncation": None, "padding": None}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(wanted))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise ModelLoadError(f"{path}: not a tokenizer: {one_line(str(error))}") from None
    if hasattr(tokenizer.model, "dropout"):
        tokenizer.model.dropout = None
    return tokenizer


def _added_tokens(document: Mapping[str, object], path: Path, *, vocab_size: int) -> dict[int, AddedToken]:
    """By id, ascending. Those beyond the model's vocabulary, as of images, can never be used."""
    tokens: dict[int, AddedToken] = {}
    entries = document.get("added_tokens")
    for entry in entries if isinstance(entries, list) else []:
        token_id, content = entry["id"], entry["content"]
        if token_id in tokens:
            raise ModelLoadError(f"{path}: two added tokens have the id {token_id}")
        if token_id >= vocab_size:
            continue
        is_special = bool(entry.get("special"))
        tokens[token_id] = AddedToken(
            content,
            single_word=bool(entry.get("single_word")),
            lstrip=bool(entry.get("lstrip")),
            rstrip=bool(entry.get("rstrip")),
            # Control tokens are found before the normaliser takes out the marks of literal text.
            normalized=bool(entry.get("normalized")) and not is_special,
            special=is_special,
        )
    return dict(sorted(tokens.items()))


def _encoder(base: Tokenizer, added: Mapping[int, AddedToken], *, special: bool = False) -> Tokenizer:
    encoder = Tokenizer(base.model)
    if normalizer := _normalizer(base.normalizer, removes_marks=special):
        encoder.normalizer = normalizer
    if base.pre_tokenizer is not None:
        encoder.pre_tokenizer = base.pre_tokenizer
    encoder.add_tokens(list(added.values()))
    encoder.encode_special_tokens = not special
    return encoder


def _normalizer(normalizer: Normalizer | None, *, removes_marks: bool) -> Normalizer | None:
    if not removes_marks:
        return normalizer
    remove = Replace(MARK, "")
    return remove if normalizer is None else NormalizerSequence([remove, normalizer])


def _vocabulary(
    base: Tokenizer,
    added: Mapping[int, AddedToken],
    config: TokenizerConfig,
    *,
    path: Path,
    vocab_size: int,
    end_ids: Iterable[int],
) -> Vocabulary:
    tokens = [f"[PAD{token_id}]" for token_id in range(vocab_size)]
    types = [int(TokenType.UNUSED)] * vocab_size
    for token, token_id in base.get_vocab().items():
        if token_id >= vocab_size:
            raise ModelLoadError(
                f"{path}: token {quote(token)} has the id {token_id}, but the model has {vocab_size:,} tokens"
            )
        tokens[token_id] = token
        types[token_id] = int(TokenType.BYTE if _is_byte(token) else TokenType.NORMAL)
    _check_added_ids(base, added, path)
    for token_id, entry in added.items():
        tokens[token_id] = entry.content
        types[token_id] = int(TokenType.CONTROL if entry.special else TokenType.USER_DEFINED)
    ids = {entry.content: token_id for token_id, entry in added.items()}
    bos, eos = (
        ids.get(text, base.token_to_id(text)) if text else None
        for text in (config.bos_token, config.eos_token)
    )
    control = {token_id for token_id, entry in added.items() if entry.special}
    ends = {token_id for token_id in (eos, *end_ids) if token_id is not None and token_id < vocab_size}
    ends |= {token_id for token_id in control if tokens[token_id] in END_TOKENS}
    special = control | ends | ({bos} if bos is not None else set())
    return Vocabulary(tokens, types, bos, eos, None, frozenset(ends), frozenset(special))


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _check_added_ids(base: Tokenizer, added: Mapping[int, AddedToken], path: Path) -> None:
    """The library numbers added tokens itself: the ids of the file must be those that it gives."""
    following = base.get_vocab_size()
    for token_id, token in added.items():
        found = base.token_to_id(token.content)
        given = following if found is None else found
        if found is None:
            following += 1
        if given != token_id:
            raise ModelLoadError(
                f"{path}: added token {quote(token.content)} has the id {token_id}, but {given} is next"
            )


def _surroundings(
    base: Tokenizer, vocabulary: Vocabulary, config: TokenizerConfig, path: Path
) -> Surroundings:
    """What the post-processor puts around a text, unless the configuration says otherwise."""
    inner = base.encode(_PROBE, add_special_tokens=False).ids
    whole = base.encode(_PROBE, add_special_tokens=True).ids
    starts = range(len(whole) - len(inner) + 1)
    start = next((at for at in starts if whole[at : at + len(inner)] == inner), 0)
    before, after = tuple(whole[:start]), tuple(whole[start + len(inner) :])
    if max((*before, *after), default=0) >= len(vocabulary.tokens):
        raise ModelLoadError(f"{path}: the post-processor adds a token that the model does not have")
    return Surroundings(
        _with_flag(before, config.adds_bos, vocabulary.bos_token_id),
        _with_flag(after, config.adds_eos, vocabulary.eos_token_id),
    )


def _with_flag(found: tuple[int, ...], wanted: bool | None, token_id: int | None) -> tuple[int, ...]:
    if wanted is None or token_id is None or (token_id in found) == wanted:
        return found
    return (*found, token_id) if wanted else tuple(other for other in found if other != token_id)


def _decoding(document: Mapping[str, object], path: Path) -> _Decoding:
    steps = list(_steps(document.get("decoder"), "decoders"))
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return _Decoding(byte_level_bytes, adds_space_prefix=False)
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return _Decoding(sentencepiece_bytes, any(map(_strips_a_space, steps)))
    found = ", ".join(sorted(map(str, kinds))) or "none"
    raise ModelLoadError(
        f"{path}: the decoder {quote(found)} is not supported; byte-level and SentencePiece are"
    )


def _steps(node: object, children: str) -> Iterable[Mapping[str, object]]:
    """A node of the file and what it is a sequence of."""
    if isinstance(node, dict):
        parts = node.get(children)
        if isinstance(parts, list):
            for part in parts:
                yield from _steps(part, children)
        else:
            yield node


def _strips_a_space(step: Mapping[str, object]) -> bool:
    if step.get("type") == "Metaspace":
        return (
            step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never"
        )
    return step.get("type") == "Strip" and step.get("content") == " " and bool(step.get("start"))
