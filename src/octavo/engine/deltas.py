"""`join_deltas`: several outputs that each hold what was new, as one."""

from collections.abc import Sequence
from dataclasses import replace

from octavo.outputs import CompletionOutput, RequestOutput


def join_deltas(outputs: Sequence[RequestOutput]) -> RequestOutput:
    """One output that tells what these outputs of one request tell.

    Args:
        outputs: of the kind DELTA, in order, at least one.
    """
    if len(outputs) == 1:
        return outputs[0]
    by_index: dict[int, list[CompletionOutput]] = {}
    for output in outputs:
        for choice in output.outputs:
            by_index.setdefault(choice.index, []).append(choice)
    prompt_logprobs = (o.prompt_logprobs for o in outputs if o.prompt_logprobs is not None)
    return replace(
        outputs[-1],
        outputs=[_joined(by_index[index]) for index in sorted(by_index)],
        prompt_logprobs=next(prompt_logprobs, None),
    )


def _joined(parts: Sequence[CompletionOutput]) -> CompletionOutput:
    last = parts[-1]
    return replace(
        last,
        text="".join(part.text for part in parts),
        token_ids=[token_id for part in parts for token_id in part.token_ids],
        logprobs=(
            None if last.logprobs is None else [entry for part in parts for entry in part.logprobs or ()]
        ),
    )
