"""`RequestOutput`: what a caller gets back, under vLLM's names."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.errors import EngineError, OctavoError
from octavo.kv.receipt import CacheReceipt


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of one token at one position, from the model's own distribution."""

    logprob: float
    rank: int | None = None
    """1 for the most likely token."""
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""Token id to log-probability at one position: the token that is there and the most likely ones."""


@dataclass(slots=True)
class CompletionOutput:
    """One of the ``n`` continuations of a request.

    Text, tokens and log-probabilities are everything so far, or with ``RequestOutputKind.DELTA`` what is new.
    """

    index: int
    text: str = ""
    token_ids: Sequence[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    """Sum over all tokens so far, whatever the kind of output."""
    logprobs: Sequence[Logprobs] | None = None
    finish_reason: str | None = None
    """"stop", "length", "abort" or "error"; ``None`` while it runs."""
    stop_reason: int | str | None = None
    """The stop token id or stop string that ended it, if it was not the end-of-sequence token."""
    error: str | None = None
    """Why this continuation failed, with finish_reason "error"."""
    seed: int | None = None
    """The seed used, given or drawn."""

    def finished(self) -> bool:
        """Whether no more tokens will come. A method, as in vLLM."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """A request's prompt and what was generated: everything so far, or with DELTA what is new."""

    request_id: str
    prompt: str | None
    prompt_token_ids: Sequence[int]
    outputs: list[CompletionOutput]
    """All continuations by index; with DELTA those that have something new."""
    prompt_logprobs: list[Logprobs | None] | None = None
    """One entry per prompt token, the first ``None``; with DELTA in one output only."""
    num_cached_tokens: int = 0
    """Prompt tokens whose K/V was found in the prefix cache."""
    finished: bool = False
    """Whether every continuation has ended."""
    embedding: Sequence[float] | None = None
    """Of the prompt, if that was asked for instead of continuations, when it is finished."""
    cache_receipt: CacheReceipt | None = None
    """What the first continuation got from the prefix cache, and why no more, from the first token on."""
    refusal: OctavoError | None = None
    """Why it was refused after it had waited; `LLM` and `AsyncEngine` raise it instead of returning this."""


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """One embedding."""

    embedding: Sequence[float]
    """[hidden_size]"""


@dataclass(frozen=True, slots=True)
class EmbeddingRequestOutput:
    """A prompt and its embedding, under vLLM's names."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: Sequence[int]
    num_cached_tokens: int = 0
    """Always 0: the mean needs the hidden state of every token."""
    finished: bool = True

    @classmethod
    def of(cls, output: RequestOutput) -> "EmbeddingRequestOutput":
        """What a finished request for an embedding gave.

        Raises:
            EngineError: it gave none.
        """
        if output.embedding is None:
            [choice] = output.outputs
            problem = choice.error or f"it ended with finish reason {choice.finish_reason!r}"
            raise EngineError(f"request {output.request_id} has no embedding: {problem}")
        return cls(output.request_id, EmbeddingOutput(output.embedding), output.prompt_token_ids)
