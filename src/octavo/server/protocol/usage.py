"""`Usage`: how many tokens a request took."""

from pydantic import BaseModel


class PromptTokensDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0
    """Tokens whose K/V was found in the prefix cache; 0 on a miss."""


class Usage(BaseModel):
    """Counts of one request, over all of its prompts and continuations."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
