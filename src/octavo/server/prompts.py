"""Texts and token ids of a request, encoded."""

from collections.abc import Sequence

from octavo.engine.prompt import EncodedPrompt
from octavo.engine.text_limit import TextLimit
from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError


def list_inputs(
    prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]], *, param: str
) -> Sequence[str | Sequence[int]]:
    """Each of the prompts, in order.

    Args:
        prompts: a text, token ids, or several of either; types were checked.
        param: the field that they come from.

    Raises:
        InvalidRequestError: there is none.
    """
    if not prompts:
        raise InvalidRequestError(f"{param} is empty; it needs at least one token", param=param)
    return [prompts] if isinstance(prompts, str) or isinstance(prompts[0], int) else prompts  # type: ignore[list-item,return-value]


def encode_inputs(
    inputs: Sequence[str | Sequence[int]],
    tokenizer: Tokenizer,
    *,
    limit: TextLimit,
    param: str,
    add_special_tokens: bool,
    parse_special: bool = False,
) -> list[EncodedPrompt]:
    """Each of several prompts, encoded. Texts take time: call it in a thread.

    Args:
        inputs: texts or token ids.
        tokenizer: of the model.
        limit: of each text.
        param: the field that they come from.
        add_special_tokens: put the tokens around a text that the model wants there.
        parse_special: take control tokens spelled in a text as such.

    Raises:
        InvalidRequestError: a text cannot be encoded.
        ContextLengthError: a text is too long for the model whatever its tokens are.
    """
    for each in inputs:
        if isinstance(each, str):
            limit.check(each, param=param)
    return [
        EncodedPrompt(
            tokenizer.encode(each, add_special_tokens=add_special_tokens, parse_special=parse_special), each
        )
        if isinstance(each, str)
        else EncodedPrompt(each)
        for each in inputs
    ]
