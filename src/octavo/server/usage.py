"""`UsageCounter`: the token counts of one request, whether its outputs come whole or in parts."""

from octavo.kv import receipt
from octavo.outputs import RequestOutput
from octavo.server.protocol.usage import CacheReceipt, PromptTokensDetails, Usage


class UsageCounter:
    """Adds up over prompts, continuations and parts.

    Attributes:
        tells_receipts: whether what each prompt got from the cache belongs to the usage.
    """

    def __init__(self, *, tells_receipts: bool = False) -> None:
        self.tells_receipts = tells_receipts
        self._num_prompt_tokens: dict[int, int] = {}
        self._num_cached_tokens: dict[int, int] = {}
        self._num_completion_tokens = 0
        self._receipts: dict[int, receipt.CacheReceipt | None] = {}

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Count an output that tells what is new, or the only one of its prompt."""
        self._num_prompt_tokens[prompt_index] = len(output.prompt_token_ids)
        self._num_cached_tokens[prompt_index] = output.num_cached_tokens
        self._num_completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)
        self._receipts[prompt_index] = output.cache_receipt

    def usage(self) -> Usage:
        """The counts so far."""
        num_prompt_tokens = sum(self._num_prompt_tokens.values())
        return Usage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=self._num_completion_tokens,
            total_tokens=num_prompt_tokens + self._num_completion_tokens,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=sum(self._num_cached_tokens.values()),
                cache_receipts=[_told(self._receipts[index]) for index in sorted(self._receipts)]
                if self.tells_receipts
                else None,
            ),
        )


def _told(got: receipt.CacheReceipt | None) -> CacheReceipt | None:
    if got is None:
        return None
    return CacheReceipt(
        reused_blocks=got.num_reused_blocks,
        copied_blocks=got.num_copied_blocks,
        computed_blocks=got.num_computed_blocks,
        first_miss_position=got.first_miss_position,
        first_miss_reason=got.first_miss_reason,
    )
