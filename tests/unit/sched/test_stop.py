"""Stop verdicts on tokens."""

import pytest

from octavo.sampling_params import SamplingParams
from octavo.sched.request import FinishReason, Request
from octavo.sched.stop import StopVerdict, stop_verdict

EOS = 2
STOP_ON_EOS = StopVerdict(FinishReason.STOP)
LENGTH = StopVerdict(FinishReason.LENGTH)


def verdicts(tokens, *, limit=100, prompt_length=3, **params):
    """The verdict after each token."""
    request = Request(
        "r", range(prompt_length), SamplingParams(**params), seed=0, eos_token_ids=frozenset({EOS})
    )
    result = []
    for token_id in tokens:
        request.append_token(token_id)
        result.append(stop_verdict(request, token_id, limit=limit))
    return result


def test_eos_ends_without_a_stop_reason():
    assert verdicts([10, EOS]) == [None, STOP_ON_EOS]


def test_ignored_eos_goes_on():
    """T70."""
    assert verdicts([10, EOS, 11], ignore_eos=True) == [None, None, None]


def test_stop_token_ends_with_itself_as_reason():
    """T70."""
    assert verdicts([10, 42], stop_token_ids=[42]) == [None, StopVerdict(FinishReason.STOP, 42)]


def test_eos_goes_before_the_same_id_as_stop_token():
    assert verdicts([EOS], stop_token_ids=[EOS]) == [STOP_ON_EOS]


def test_ignored_eos_still_ends_as_a_stop_token():
    assert verdicts([EOS], stop_token_ids=[EOS], ignore_eos=True) == [StopVerdict(FinishReason.STOP, EOS)]


def test_max_tokens_ends_by_length():
    """T70."""
    assert verdicts([10, 11], max_tokens=2) == [None, LENGTH]


def test_eos_on_the_last_token_is_a_stop():
    assert verdicts([10, EOS], max_tokens=2) == [None, STOP_ON_EOS]


@pytest.mark.parametrize("token_id", [EOS, 42])
def test_min_tokens_holds_back_end_tokens(token_id):
    expected = STOP_ON_EOS if token_id == EOS else StopVerdict(FinishReason.STOP, 42)
    tokens = [token_id, token_id, token_id]
    assert verdicts(tokens, min_tokens=3, stop_token_ids=[42]) == [None, None, expected]


def test_length_wins_over_min_tokens():
    """T71: 3 prompt tokens and 7 outputs reach a limit of 10 although min_tokens is 500."""
    result = verdicts(range(10, 17), limit=10, min_tokens=500, max_tokens=500)
    assert result == [None] * 6 + [LENGTH]
