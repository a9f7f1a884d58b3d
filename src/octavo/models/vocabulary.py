"""`Vocabulary`: the tokens of a GGUF file and what each of them is for."""

from dataclasses import dataclass
from enum import IntEnum

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata


class TokenType(IntEnum):
    """GGUF's ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Chat models end a turn with one of these, but not every file names it as its end-of-turn token.
END_TOKENS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"}
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id. Every id in the sets is below ``len(tokens)``."""

    tokens: list[str]
    types: list[int]
    """One `TokenType` number per token."""
    bos_token_id: int | None
    eos_token_id: int | None
    unknown_token_id: int | None
    end_ids: frozenset[int]
    """Every token that ends a text or a turn."""
    special_ids: frozenset[int]
    """Control tokens, which are never text."""

    def ids_of(self, token_type: TokenType) -> list[int]:
        """The ids of all tokens of one type, ascending."""
        return [token_id for token_id, found in enumerate(self.types) if found == token_type]

    def text_of(self, token_id: int | None) -> str:
        """The token as written in a chat template; empty if there is none."""
        return "" if token_id is None else self.tokens[token_id]


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Read the ``tokenizer.ggml`` section.

    Raises:
        ModelLoadError: there is no vocabulary, or an id in it does not exist.
    """
    tokens = metadata.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise ModelLoadError(f"{metadata.path}: the file has no vocabulary (tokenizer.ggml.tokens)")
    type_array = metadata.array("tokenizer.ggml.token_type", length=len(tokens))
    types = [int(TokenType.NORMAL)] * len(tokens) if type_array is None else type_array.tolist()

    def special(name: str) -> int | None:
        return metadata.token_id(f"tokenizer.ggml.{name}_token_id", vocab_size=len(tokens))

    bos, eos, unknown = special("bos"), special("eos"), special("unknown")
    control = {i for i, found in enumerate(types) if found in (TokenType.CONTROL, TokenType.UNKNOWN)}
    ends = {eos, special("eot"), special("eom")} | {i for i in control if tokens[i] in END_TOKENS}
    end_ids = frozenset(token_id for token_id in ends if token_id is not None)
    special_ids = frozenset(control | end_ids | ({bos} if bos is not None else set()))
    return Vocabulary(tokens, types, bos, eos, unknown, end_ids, special_ids)
