"""Log-probabilities in the forms that clients expect."""

import pytest
from engine_fakes import EOS, ByteTokenizer, piece

from octavo.outputs import Logprob
from octavo.server.logprobs import (
    LOWEST,
    CompletionLogprobsBuilder,
    chat_logprobs,
    prompt_logprobs,
    token_name,
)

A, B, C = ord("a"), ord("b"), ord("c")
TOKENIZER = ByteTokenizer()


def entry(chosen, *others):
    """The entry of one position, as the engine makes it: the token that is there, then the most likely."""
    return {token_id: Logprob(logprob, rank, "?") for token_id, logprob, rank in (chosen, *others)}


def test_the_most_likely_tokens_in_order_without_the_chosen_one_if_it_is_none_of_them():
    told = chat_logprobs(TOKENIZER, [C], [entry((C, -5.0, 9), (A, -0.1, 1), (B, -2.5, 2))], num_top=2)
    [token] = told.content
    assert (token.token, token.logprob, token.bytes) == ("c", -5.0, [C])
    assert [(top.token, top.logprob) for top in token.top_logprobs] == [("a", -0.1), ("b", -2.5)]


def test_the_chosen_token_takes_its_place_among_the_most_likely():
    told = chat_logprobs(TOKENIZER, [B], [entry((B, -2.5, 2), (A, -0.1, 1))], num_top=2)
    assert [top.token for top in told.content[0].top_logprobs] == ["a", "b"]


def test_no_alternatives_unless_asked_for():
    told = chat_logprobs(TOKENIZER, [A], [entry((A, -0.1, 1))], num_top=0)
    assert told.content[0].top_logprobs == []


def test_parts_of_characters_have_exact_bytes():
    told = chat_logprobs(TOKENIZER, [0xC3], [entry((0xC3, -1.0, 1))], num_top=0)
    assert (told.content[0].token, told.content[0].bytes) == ("\ufffd", [0xC3])


def test_offsets_count_characters_and_skip_control_tokens():
    builder = CompletionLogprobsBuilder(TOKENIZER, num_top=1)
    ids = [A, 0xC3, 0xA9, piece("<turn>"), piece("日本"), B]
    first = builder.part(ids[:2], [None, entry((0xC3, -1.0, 1))])
    rest = builder.part(ids[2:], [entry((token_id, -1.0, 1)) for token_id in ids[2:]])
    assert first.text_offset + rest.text_offset == [0, 1, 1, 2, 2, 4]
    assert first.tokens == ["a", "bytes:\\xc3"]
    assert first.token_logprobs == [None, -1.0]
    assert first.top_logprobs == [None, {"bytes:\\xc3": -1.0}]


def test_the_chosen_token_is_among_the_alternatives_of_a_completion():
    builder = CompletionLogprobsBuilder(TOKENIZER, num_top=2)
    told = builder.part([C], [entry((C, -5.0, 9), (A, -0.1, 1), (B, -2.5, 2))])
    assert list(told.top_logprobs[0].items()) == [("a", -0.1), ("b", -2.5), ("c", -5.0)]


def test_minus_infinity_becomes_a_number_that_json_has():
    told = prompt_logprobs([None, entry((A, float("-inf"), 3))])
    assert told[0] is None
    assert told[1][A].logprob == LOWEST


@pytest.mark.parametrize(("token", "name"), [(b"ab", "ab"), (b"\xe6\x97", "bytes:\\xe6\\x97"), (b"", "")])
def test_different_tokens_have_different_names(token, name):
    assert token_name(token) == name


def test_special_tokens_have_their_names():
    told = chat_logprobs(TOKENIZER, [EOS], [entry((EOS, -0.5, 1))], num_top=0)
    assert told.content[0].token == "<eos>"
