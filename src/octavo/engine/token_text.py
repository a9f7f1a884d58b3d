"""Log-probabilities as a caller gets them: by token id, each with the token's text."""

from octavo.engine.tokenizer import Tokenizer
from octavo.outputs import Logprob, Logprobs
from octavo.sched.output import TokenLogprobs


def logprobs_with_text(tokenizer: Tokenizer, token_id: int, logprobs: TokenLogprobs) -> Logprobs:
    """The entry of one position: first the token that is there, then the most likely ones, in order."""
    entry = {token_id: Logprob(logprobs.logprob, logprobs.rank, token_text(tokenizer, token_id))}
    for rank, (top_id, top_logprob) in enumerate(
        zip(logprobs.top_token_ids, logprobs.top_logprobs, strict=True), start=1
    ):
        if top_id != token_id:
            entry[top_id] = Logprob(top_logprob, rank, token_text(tokenizer, top_id))
    return entry


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The text of one token by itself; U+FFFD where it holds only a part of a character."""
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")
