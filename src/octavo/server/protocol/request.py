"""`GenerationRequest`: the fields that both generating endpoints share."""

from typing import Annotated

from pydantic import Field

from octavo.server.protocol.body import ListOf, RequestBody
from octavo.server.protocol.response_format import ResponseFormat, StructuredOutputs

MAX_LOGPROBS = 20


class StreamOptions(RequestBody):
    """What a stream holds beside the text."""

    include_usage: bool = False
    """A last chunk with the usage, before ``[DONE]``."""
    continuous_usage_stats: bool = False
    """The usage so far in every chunk."""


class GenerationRequest(RequestBody):
    """Fields of the OpenAI API first, then those that vLLM added. Ranges are those of `SamplingParams`."""

    model: str | None = None
    """One of those that /v1/models lists; the served model if omitted."""
    n: int | None = None
    """Continuations of each prompt."""
    temperature: float | None = None
    """0 is greedy; 1 if omitted."""
    top_p: float | None = None
    seed: int | None = None
    """Equal seeds give equal tokens, to the bit; drawn and returned if omitted."""
    stop: str | ListOf[str] | None = None
    """Strings that end the text and are no part of it."""
    max_tokens: int | None = None
    """Upper bound of generated tokens; what does not fit the context is cut."""
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], Field(fail_fast=True)] | None = None
    """Token id to a number between -100 and 100."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    """Accepted, and used for nothing."""

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: ListOf[int] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    """Log-probabilities of the prompt's tokens, and of this many alternatives; not with stream."""
    response_format: ResponseFormat | None = None
    """The shape of the text: JSON, or JSON that keeps to a schema."""
    structured_outputs: StructuredOutputs | None = None
    """The shape of the text, said in more ways; not together with ``response_format``."""
    regex: str | None = None
    """Short for ``structured_outputs: {"regex": …}``, as are the next two."""
    choice: ListOf[str] | None = None
    grammar: str | None = None
    priority: int = 0
    """Lower runs first, if the server schedules by priority."""
    cache_salt: str | None = None
    """Only requests with the same salt share cached prefixes."""
    cache_receipt: bool | None = None
    """Tell in the usage what each prompt got from the prefix cache, and why no more; a stream then ends with
    the usage."""

    def unknown_fields(self) -> list[str]:
        """Names of the fields that mean nothing here."""
        names = sorted(self.model_extra or {})
        for field in ("stream_options", "structured_outputs"):
            part = getattr(self, field)
            names += sorted(f"{field}.{name}" for name in (part and part.model_extra) or {})
        return names
