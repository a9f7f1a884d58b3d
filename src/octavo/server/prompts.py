"""Texts and token ids of a request, encoded."""

from collections.abc import Sequence

from octavo.engine.prompt import EncodedPrompt
from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError


def encode_prompts(
    prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    *,
    param: str,
    add_special_tokens: bool,
    parse_special: bool = False,
) -> list[EncodedPrompt]:
    """Each of the prompts, in order. Texts take time: call it in a thread.

    Args:
        prompts: a text, token ids, or several of either; types were checked.
        tokenizer: of the model.
        param: the field that they come from.
        add_special_tokens: put the tokens around a text that the model wants there.
        parse_special: take control tokens spelled in a text as such.

    Raises:
        InvalidRequestError: there is none, or a text cannot be encoded.
    """
    if not prompts:
        raise InvalidRequestError(f"{param} is empty; it needs at least one token", param=param)
    several = [prompts] if isinstance(prompts, str) or isinstance(prompts[0], int) else prompts
    return [
        EncodedPrompt(
            tokenizer.encode(each, add_special_tokens=add_special_tokens, parse_special=parse_special), each
        )
        if isinstance(each, str)
        else EncodedPrompt(each)  # type: ignore[arg-type]
        for each in several
    ]
