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
    composes: bool = False
    """Whether characters and their accents are composed first (Unicode's NFC)."""


_CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_DIGIT, _UP_TO_THREE_DIGITS = r"\p{N}", r"\p{N}{1,3}"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _by_letters(digits: str) -> str:
    """The pattern of Llama 3 and its relatives, which differ in how many digits make a piece."""
    return (
        rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_LINES}"
    )


_QWEN35 = (
    rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|{_DIGIT}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}"
)
_SEED_CODER = (
    rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{_DIGIT}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES}"
)

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _by_case(digits: str, *, suffix: str = "") -> str:
    """The pattern of Tekken and GPT-4o: a word ends where lower case turns to upper."""
    word = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{word}{_UPPER}*{_LOWER}+{suffix}|{word}{_UPPER}+{_LOWER}*{suffix}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"
    )


# DeepSeek's first models list the letters that have two cases, as Unicode knew them then [hexadecimal].
_CASED_LETTERS = """
41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C
38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B
1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4
1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113
2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B
2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06
FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF
1E900-1E943
"""


def _characters(ranges: str) -> str:
    """The inside of a class, from code points in hexadecimal."""
    return "".join(
        "-".join(chr(int(end, 16)) for end in one_range.split("-")) for one_range in ranges.split()
    )


_IDEOGRAPHS = f"[{_characters('4E00-9FA5 800-4E00 AC00-D7FF')}]+"
_CHINESE_AND_KANA = f"[{_characters('4E00-9FA5 3040-309F 30A0-30FF')}]+"
_MARKS = _characters("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}"
)

_GPT2_SPLIT = WordSplit((_GPT2,))
_DIGITS_GPT2_SPLIT = WordSplit((_DIGIT, _GPT2))
_LLAMA3_SPLIT = WordSplit((_by_letters(_UP_TO_THREE_DIGITS),), whole_words=True, adds_bos=True)
_GPT4_SPLIT = WordSplit((_by_letters(_UP_TO_THREE_DIGITS),))
_QWEN2_SPLIT = WordSplit((_by_letters(_DIGIT),), composes=True)
_GPT4O_SPLIT = WordSplit((_by_case(_UP_TO_THREE_DIGITS, suffix=rf"(?i:{_CONTRACTIONS})?"),))
_DEEPSEEK_V3_SPLIT = WordSplit((_UP_TO_THREE_DIGITS, _CHINESE_AND_KANA, _DEEPSEEK_V3))

_NAMES: Mapping[WordSplit, str] = {
    WordSplit((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")): "default",
    _GPT2_SPLIT: "gpt-2 gpt2 phi-2 gigachat a.x-4.0 mellum jais trillion granite-docling exaone4",
    _GPT2_SPLIT._replace(composes=True): "olmo mpt",
    _DIGITS_GPT2_SPLIT: "smollm starcoder refact codeshell exaone minerva-7b",
    _DIGITS_GPT2_SPLIT._replace(composes=True): "command-r",
    _LLAMA3_SPLIT: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
    _GPT4_SPLIT: "dbrx smaug-bpe glm4 chatglm-bpe",
    _QWEN2_SPLIT: "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez kormo",
    _QWEN2_SPLIT._replace(composes=False): "grok-2 bailingmoe bailingmoe2 llada-moe",
    WordSplit((_QWEN35,), composes=True): "qwen35",
    WordSplit((_by_case(_DIGIT),), whole_words=True, adds_bos=True): "tekken",
    _GPT4O_SPLIT: "gpt-4o llama4 minimax-m2",
    WordSplit(
        (
            r"[\r\n]",
            rf"\s?[{_characters(_CASED_LETTERS)}]+",
            rf"\s?[{_MARKS}]+",
            r"\s+$",
            _IDEOGRAPHS,
            r"\p{N}+",
        )
    ): "deepseek-llm",
    WordSplit((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _IDEOGRAPHS, _DIGIT)): "deepseek-coder",
    _DEEPSEEK_V3_SPLIT: "deepseek-v3 hunyuan-dense",
    WordSplit((_SEED_CODER,)): "seed-coder",
}

WORD_SPLITS: Mapping[str, WordSplit] = MappingProxyType(
    {name: split for split, names in _NAMES.items() for name in names.split()}
)
"""By GGUF's ``tokenizer.ggml.pre``."""
