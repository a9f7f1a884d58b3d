"""`UsageCounter`: the token counts of one request, whether its outputs come whole or in parts."""

from octavo.outputs import RequestOutput
from octavo.server.protocol.usage import PromptTokensDetails, Usage


class UsageCounter:
    """Adds up over prompts, continuations and parts."""

    def __init__(self) -> None:
        self._num_prompt_tokens: dict[int, int] = {}
        self._num_cached_tokens: dict[int, int] = {}
        self._num_completion_tokens = 0

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Count an output that tells what is new, or the only one of its prompt."""
        self._num_prompt_tokens[prompt_index] = len(output.prompt_token_ids)
        self._num_cached_tokens[prompt_index] = output.num_cached_tokens
        self._num_completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)

    def usage(self) -> Usage:
        """The counts so far."""
        num_prompt_tokens = sum(self._num_prompt_tokens.values())
        return Usage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=self._num_completion_tokens,
            total_tokens=num_prompt_tokens + self._num_completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(self._num_cached_tokens.values())),
        )
