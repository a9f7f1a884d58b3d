"""`TokenizerScheme`: what differs between the kinds of tokenizer that GGUF files carry."""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerScheme:
    """How text becomes tokens, and a token bytes again."""

    model: Model
    normalizer: Normalizer | None
    pre_tokenizer: PreTokenizer | None
    bytes_of: Callable[[str, int], bytes]
    """The bytes of an ordinary token, from its spelling in the vocabulary and its `TokenType` number."""
    adds_bos: bool
    """Whether BOS goes in front unless the file says otherwise."""
    adds_eos: bool = False
    """The same for EOS at the end."""
    adds_space_prefix: bool
    """Whether a text gets a space in front, which decoding takes away again."""
