"""From a runner's result to an update."""

from octavo.sampling_params import SamplingParams
from octavo.sched.output import RequestResult, TokenLogprobs
from octavo.sched.request import FinishReason, Request
from octavo.sched.update import RequestUpdate, apply_result

LOGPROBS = TokenLogprobs(-0.5, 1)


def make_request(**params):
    return Request("r", [1, 2, 3], SamplingParams(**params), seed=0)


def apply(request, result, *, samples=True):
    return apply_result(request, result, samples=samples, limit=100)


def test_token_is_appended_and_told():
    request = make_request()
    result = RequestResult(9, LOGPROBS, (LOGPROBS,))
    update = apply(request, result)
    assert update == RequestUpdate("r", 9, LOGPROBS, (LOGPROBS,))
    assert request.output_token_ids == [9]


def test_last_token_carries_the_reason():
    request = make_request(stop_token_ids=[9])
    update = apply(request, RequestResult(9))
    assert (update.token_id, update.finish_reason, update.stop_reason) == (9, FinishReason.STOP, 9)
    assert request.is_finished


def test_a_part_of_the_prompt_is_no_news():
    assert apply(make_request(), RequestResult(), samples=False) is None


def test_prompt_logprobs_of_a_part_are_told():
    update = apply(make_request(), RequestResult(prompt_logprobs=(LOGPROBS,)), samples=False)
    assert update == RequestUpdate("r", prompt_logprobs=(LOGPROBS,))


def test_error_ends_the_request_without_a_token():
    for samples in (True, False):
        request = make_request()
        update = apply(request, RequestResult(9, error="NaN in the logits"), samples=samples)
        assert update == RequestUpdate("r", finish_reason=FinishReason.ERROR, error="NaN in the logits")
        assert request.finish_reason is FinishReason.ERROR
        assert request.output_token_ids == []


def test_missing_token_is_an_error():
    update = apply(make_request(), RequestResult())
    assert update.error == "the runner returned no token"
    assert update.finish_reason is FinishReason.ERROR
