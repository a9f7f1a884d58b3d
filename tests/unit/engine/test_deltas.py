"""Several outputs that hold what was new, as one."""

from octavo.engine.deltas import join_deltas
from octavo.outputs import CompletionOutput, Logprob, RequestOutput


def delta(*choices, prompt_logprobs=None, finished=False):
    return RequestOutput("r", "text", [1], list(choices), prompt_logprobs, 3, finished)


def test_pieces_are_joined_by_choice_and_the_end_is_the_last():
    joined = join_deltas(
        [
            delta(CompletionOutput(1, "x", [9]), prompt_logprobs=[None]),
            delta(CompletionOutput(0, "a", [1]), CompletionOutput(1, "y", [8], finish_reason="stop")),
            delta(CompletionOutput(0, "b", [2, 3], finish_reason="length"), finished=True),
        ]
    )
    assert [(c.index, c.text, c.token_ids, c.finish_reason) for c in joined.outputs] == [
        (0, "ab", [1, 2, 3], "length"),
        (1, "xy", [9, 8], "stop"),
    ]
    assert (joined.finished, joined.prompt_logprobs, joined.num_cached_tokens) == (True, [None], 3)


def test_logprobs_are_joined_and_their_sum_is_the_last():
    entries = [{1: Logprob(-1.0)}, {2: Logprob(-2.0)}]
    joined = join_deltas(
        [
            delta(CompletionOutput(0, "a", [1], -1.0, entries[:1])),
            delta(CompletionOutput(0, "b", [2], -3.0, entries[1:])),
        ]
    )
    assert (joined.outputs[0].logprobs, joined.outputs[0].cumulative_logprob) == (entries, -3.0)


def test_one_is_itself():
    only = delta(CompletionOutput(0, "a", [1]))
    assert join_deltas([only]) is only
