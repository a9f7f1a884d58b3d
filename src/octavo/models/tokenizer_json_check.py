"""What is checked in a ``tokenizer.json`` before the `tokenizers` library sees it, which trusts it.

The library panics on a vocabulary whose ids collide, and runs whatever a normaliser says: a few replacements
one after another make terabytes of a short text.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.models.quoting import quote

_MODELS = ("BPE", "Unigram")
_MAX_GROWTH = 64
"""Characters that a normaliser may make of one."""
_MAX_STEPS = 64
_LARGEST_ID = 1 << 24


def check_tokenizer_json(document: Mapping[str, object], path: Path) -> None:
    """Refuse what would hurt.

    Raises:
        ModelLoadError: what is wrong with the file.
    """
    model = document.get("model")
    if not isinstance(model, dict):
        raise ModelLoadError(f"{path}: has no model")
    # Files from before the library wrote the type have BPE's vocabulary and merges.
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind not in _MODELS:
        raise ModelLoadError(
            f"{path}: a tokenizer of kind {quote(kind)} is not supported; {' and '.join(_MODELS)} are"
        )
    if kind == "BPE":
        _check_ids(model.get("vocab"), path)
    _check_added(document.get("added_tokens"), path)
    _check_growth(document.get("normalizer"), path)


def _check_ids(vocab: object, path: Path) -> None:
    if not isinstance(vocab, dict) or not vocab:
        raise ModelLoadError(f"{path}: the model has no vocabulary")
    ids = set(vocab.values()) if all(type(token_id) is int for token_id in vocab.values()) else set()
    if len(ids) != len(vocab) or min(ids) < 0 or max(ids) >= _LARGEST_ID:
        raise ModelLoadError(f"{path}: the vocabulary's ids must be distinct integers below {_LARGEST_ID:,}")


def _check_added(added: object, path: Path) -> None:
    if added is None:
        return
    if not isinstance(added, list) or not all(map(_is_added_token, added)):
        raise ModelLoadError(f"{path}: added_tokens must be a list of tokens, each with an id and a content")


def _is_added_token(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    token_id, content = entry.get("id"), entry.get("content")
    return (
        type(token_id) is int and 0 <= token_id < _LARGEST_ID and isinstance(content, str) and content != ""
    )


def _check_growth(normalizer: object, path: Path) -> None:
    growth = 1
    for number, step in enumerate(_flat(normalizer)):
        growth *= _growth(step)
        if growth > _MAX_GROWTH or number >= _MAX_STEPS:
            raise ModelLoadError(f"{path}: the normaliser makes text more than {_MAX_GROWTH} times longer")


def _flat(node: object) -> Iterable[Mapping[str, object]]:
    if isinstance(node, dict):
        parts = node.get("normalizers")
        if isinstance(parts, list):
            for part in parts:
                yield from _flat(part)
        else:
            yield node


def _growth(step: Mapping[str, object]) -> int:
    """How many characters a step can make of one, roughly; `Prepend` adds to a text but once."""
    content, pattern = step.get("content"), step.get("pattern")
    if step.get("type") != "Replace" or not isinstance(content, str):
        return 1
    text = pattern.get("String") if isinstance(pattern, dict) else None
    shortest = len(text) if isinstance(text, str) and text else 1
    return max(1, -(-len(content) // shortest))
