"""`Usage`: how many tokens a request took."""

from typing import Any

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from octavo.kv.receipt import MissReason


class CacheReceipt(BaseModel):
    """What a prompt got from the prefix cache, in blocks, and why no more."""

    reused_blocks: int
    """Shared with whoever computed them."""
    copied_blocks: int
    computed_blocks: int
    first_miss_position: int
    """Of the first token that was computed."""
    first_miss_reason: MissReason


class PromptTokensDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0
    """Tokens whose K/V was found in the prefix cache; 0 on a miss."""
    cache_receipts: list[CacheReceipt | None] | None = None
    """One per prompt, if ``cache_receipt`` asks for them; ``None`` before anything of it was computed."""

    @model_serializer(mode="wrap")
    def _without_absent_parts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.cache_receipts is None:
            del written["cache_receipts"]
        return written


class Usage(BaseModel):
    """Counts of one request, over all of its prompts and continuations."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
