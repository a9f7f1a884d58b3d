"""The engine's log-probabilities in the forms that clients expect."""

import codecs
from collections.abc import Iterable, Sequence

from octavo.engine.tokenizer import Tokenizer
from octavo.outputs import Logprobs
from octavo.server.protocol.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot carry."""


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Iterable[Logprobs], *, num_top: int
) -> ChatLogprobs:
    """Of the tokens of a message, or of a part of it."""
    return ChatLogprobs(
        content=[
            TokenLogprob(
                **_token(tokenizer, token_id, entry).model_dump(),
                top_logprobs=[_token(tokenizer, top_id, entry) for top_id in _top_ids(entry, num_top)],
            )
            for token_id, entry in zip(token_ids, logprobs, strict=True)
        ]
    )


def prompt_logprobs(logprobs: Iterable[Logprobs | None]) -> PromptLogprobs:
    """Of the tokens of a prompt."""
    return [
        None
        if entry is None
        else {
            token_id: PromptLogprob(
                logprob=_finite(value.logprob), rank=value.rank, decoded_token=value.decoded_token
            )
            for token_id, value in entry.items()
        }
        for entry in logprobs
    ]


class CompletionLogprobsBuilder:
    """Makes the entries of one text, part by part; offsets go on from one part to the next."""

    def __init__(self, tokenizer: Tokenizer, *, num_top: int) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def part(self, token_ids: Sequence[int], logprobs: Sequence[Logprobs | None]) -> CompletionLogprobs:
        """The entries of the next tokens."""
        names = [self._name(token_id) for token_id in token_ids]
        return CompletionLogprobs(
            text_offset=[self._advance(token_id) for token_id in token_ids],
            tokens=names,
            token_logprobs=[
                None if entry is None else _finite(entry[token_id].logprob)
                for token_id, entry in zip(token_ids, logprobs, strict=True)
            ],
            top_logprobs=[
                None if entry is None else self._top(token_id, entry)
                for token_id, entry in zip(token_ids, logprobs, strict=True)
            ],
        )

    def _top(self, token_id: int, entry: Logprobs) -> dict[str, float]:
        """The most likely tokens, and the one that is there."""
        top: dict[str, float] = {}
        for each in (*_top_ids(entry, self._num_top), token_id):
            top.setdefault(self._name(each), _finite(entry[each].logprob))
        return top

    def _advance(self, token_id: int) -> int:
        """Where the token begins; control tokens are no part of the text."""
        start = self._offset
        if not self._tokenizer.is_special(token_id):
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return start

    def _name(self, token_id: int) -> str:
        return token_name(self._tokenizer.token_bytes(token_id))


def token_name(token: bytes) -> str:
    """The text of a token, or its bytes if they are none: different tokens have different names."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _token(tokenizer: Tokenizer, token_id: int, entry: Logprobs) -> TopLogprob:
    token = tokenizer.token_bytes(token_id)
    return TopLogprob(
        token=token.decode("utf-8", "replace"), logprob=_finite(entry[token_id].logprob), bytes=list(token)
    )


def _top_ids(entry: Logprobs, num_top: int) -> list[int]:
    """The most likely tokens, in order; the entry also holds the token that is there, wherever it ranks."""
    return sorted(entry, key=lambda token_id: -entry[token_id].logprob)[:num_top]


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
