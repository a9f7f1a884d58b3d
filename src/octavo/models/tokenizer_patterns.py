"""How a byte-level BPE tokenizer cuts text into words before it merges: one pattern list per GGUF name.

A word never spans two pieces, so the wrong pattern gives other token ids than the model was trained on.
The patterns are those published with the models; a text passes through them one after another.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class WordSplit(NamedTuple):
    """The rules that belong to one value of ``tokenizer.ggml.pre``."""

    patterns: tuple[str, ...]
    """Every match is a piece, and so is what lies between two matches."""
    whole_words: bool = False
    """A word that is a token as it stands is never built from merges."""
    adds_bos: bool = False
    """Whether the model wants BOS unless the file says otherwise."""


_CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"


def _by_letters(digits: str) -> str:
    """The pattern of Llama 3 and its relatives, which differ in how many digits make a piece."""
    return (
        rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_GPT2_SPLIT = WordSplit((_GPT2,))
_SMOLLM_SPLIT = WordSplit((_DIGIT, _GPT2))
_LLAMA3_SPLIT = WordSplit((_by_letters(r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)
_QWEN2_SPLIT = WordSplit((_by_letters(_DIGIT),))
_DEFAULT_SPLIT = WordSplit((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

WORD_SPLITS: Mapping[str, WordSplit] = MappingProxyType(
    {
        "default": _DEFAULT_SPLIT,
        "gpt-2": _GPT2_SPLIT,
        "gpt2": _GPT2_SPLIT,
        "olmo": _GPT2_SPLIT,
        "phi-2": _GPT2_SPLIT,
        "smollm": _SMOLLM_SPLIT,
        "starcoder": _SMOLLM_SPLIT,
        "llama-bpe": _LLAMA3_SPLIT,
        "llama3": _LLAMA3_SPLIT,
        "llama-v3": _LLAMA3_SPLIT,
        "falcon3": _LLAMA3_SPLIT,
        "qwen2": _QWEN2_SPLIT,
        "deepseek-r1-qwen": _QWEN2_SPLIT,
        "tekken": WordSplit((_TEKKEN,), whole_words=True, adds_bos=True),
    }
)
"""By GGUF's ``tokenizer.ggml.pre``."""
