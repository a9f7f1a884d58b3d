"""Updates of scheduler requests, told as outputs of callers' requests."""

import pytest
from engine_fakes import EOS, ByteTokenizer, piece

from octavo.engine.deltas import join_deltas
from octavo.engine.output_processor import OutputProcessor, StopFound
from octavo.outputs import Logprob
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sched.output import TokenLogprobs
from octavo.sched.request import FinishReason, Request
from octavo.sched.update import RequestUpdate


class Processor(OutputProcessor):
    """Gives requests their tokens first, as the scheduler does."""

    def __init__(self, requests):
        super().__init__(ByteTokenizer())
        self.tokens_of = {request.request_id: request.append_token for request in requests}

    def process(self, updates):
        for update in updates:
            if update.token_id is not None:
                self.tokens_of[update.request_id](update.token_id)
        return super().process(updates)


def processor_with(choice_ids=("r",), prompt=(1, 2, 3), **params):
    first = Request(choice_ids[0], prompt, SamplingParams(n=len(choice_ids), **params), seed=5)
    siblings = [first.sibling(name, choice_index=i) for i, name in enumerate(choice_ids[1:], start=1)]
    processor = Processor([first, *siblings])
    processor.add(processor.prepare("r", [first, *siblings], prompt="text"))
    return processor


def test_logprobs_name_the_token_first_and_carry_texts_and_ranks():
    processor = processor_with(logprobs=2)
    top = TokenLogprobs(-2.5, 3, (ord("x"), ord("y")), (-0.5, -1.5))
    (output,), _ = processor.process([RequestUpdate("r", ord("a"), top)])
    (entry,) = output.outputs[0].logprobs
    assert list(entry.items()) == [
        (ord("a"), Logprob(-2.5, 3, "a")),
        (ord("x"), Logprob(-0.5, 1, "x")),
        (ord("y"), Logprob(-1.5, 2, "y")),
    ]


def test_a_token_among_the_top_is_listed_once():
    processor = processor_with(logprobs=1)
    (output,), _ = processor.process(
        [RequestUpdate("r", ord("a"), TokenLogprobs(-0.5, 1, (ord("a"),), (-0.5,)))]
    )
    assert output.outputs[0].logprobs == [{ord("a"): Logprob(-0.5, 1, "a")}]


def test_a_part_of_a_character_is_shown_as_a_replacement_character():
    processor = processor_with(logprobs=0)
    (output,), _ = processor.process([RequestUpdate("r", 0xE2, TokenLogprobs(-1.0, 1))])
    assert output.outputs[0].logprobs[0][0xE2].decoded_token == "\ufffd"


def test_the_cumulative_logprob_adds_up_and_is_absent_unless_asked_for():
    processor = processor_with(logprobs=0)
    for logprob in (-1.0, -0.25):
        (output,), _ = processor.process([RequestUpdate("r", ord("a"), TokenLogprobs(logprob, 1))])
    assert output.outputs[0].cumulative_logprob == -1.25
    (bare,), _ = processor_with().process([RequestUpdate("r", ord("a"))])
    assert (bare.outputs[0].cumulative_logprob, bare.outputs[0].logprobs) == (None, None)


def test_prompt_logprobs_begin_with_none_and_belong_to_the_tokens_after():
    processor = processor_with(prompt_logprobs=0)
    reported = (TokenLogprobs(-1.0, 1), TokenLogprobs(-2.0, 4))
    (output,), _ = processor.process([RequestUpdate("r", ord("a"), prompt_logprobs=reported)])
    assert output.prompt_logprobs == [None, {2: Logprob(-1.0, 1, "\x02")}, {3: Logprob(-2.0, 4, "\x03")}]


def test_prompt_logprobs_of_a_single_token_are_just_none():
    (output,), _ = processor_with(prompt=(1,), prompt_logprobs=0).process([RequestUpdate("r", ord("a"))])
    assert output.prompt_logprobs == [None]


def test_without_prompt_logprobs_there_is_no_list():
    (output,), _ = processor_with().process([RequestUpdate("r", ord("a"))])
    assert output.prompt_logprobs is None


def test_one_output_per_request_however_many_choices_changed():
    processor = processor_with(("r#0", "r#1"))
    outputs, stops = processor.process(
        [
            RequestUpdate("r#0", ord("a")),
            RequestUpdate("r#1", ord("b")),
        ]
    )
    assert [[choice.text for choice in output.outputs] for output in outputs] == [["a", "b"]]
    assert stops == []


def test_a_stop_string_is_reported_once_and_the_request_forgotten():
    processor = processor_with(stop=["stop"])
    (output,), stops = processor.process([RequestUpdate("r", piece("stop"))])
    assert stops == [StopFound("r", "stop")]
    assert output.finished
    assert "r" not in processor
    assert processor.process([RequestUpdate("r", ord("a"))]) == ([], [])


def test_a_stop_string_in_a_last_update_needs_no_verdict():
    processor = processor_with(stop=["stop"])
    (output,), stops = processor.process(
        [RequestUpdate("r", piece("stop"), finish_reason=FinishReason.LENGTH)]
    )
    assert (output.outputs[0].finish_reason, stops) == ("stop", [])


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_an_incomplete_character_at_the_end_is_shown(reason):
    processor = processor_with()
    processor.process([RequestUpdate("r", 0xE2)])
    last = EOS if reason is FinishReason.STOP else 0x82
    (output,), _ = processor.process([RequestUpdate("r", last, finish_reason=reason)])
    assert output.outputs[0].text == "\ufffd"


def test_an_error_names_its_cause_and_keeps_the_text():
    processor = processor_with()
    processor.process([RequestUpdate("r", ord("a"))])
    (output,), _ = processor.process(
        [RequestUpdate("r", finish_reason=FinishReason.ERROR, error="non-finite logits")]
    )
    choice = output.outputs[0]
    assert (choice.text, choice.finish_reason, choice.error) == ("a", "error", "non-finite logits")


DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY


def letter(request_id, text, **rest):
    return RequestUpdate(request_id, ord(text), TokenLogprobs(-0.5, 1), **rest)


def test_deltas_hold_what_is_new_and_the_sum_of_all():
    processor = processor_with(output_kind=DELTA, logprobs=0)
    outputs = [processor.process([letter("r", text)]).outputs[0] for text in "ab"]
    last = processor.process([letter("r", "c", finish_reason=FinishReason.LENGTH)]).outputs[0]
    choices = [output.outputs[0] for output in (*outputs, last)]
    assert [choice.text for choice in choices] == ["a", "b", "c"]
    assert [choice.token_ids for choice in choices] == [[97], [98], [99]]
    assert [list(entry) for choice in choices for entry in choice.logprobs] == [[97], [98], [99]]
    assert [choice.cumulative_logprob for choice in choices] == [-0.5, -1.0, -1.5]
    assert [output.finished for output in (*outputs, last)] == [False, False, True]
    assert choices[-1].finish_reason == "length"


def test_text_held_back_is_new_when_it_is_certain():
    processor = processor_with(output_kind=DELTA, stop=["ac"])
    assert [processor.process([letter("r", text)]).outputs[0].outputs[0].text for text in "xab"] == [
        "x",
        "",
        "ab",
    ]


def test_deltas_are_of_the_choices_that_changed():
    processor = processor_with(("r#0", "r#1"), output_kind=DELTA)
    ended = letter("r#0", "a", finish_reason=FinishReason.LENGTH)
    (first,), _ = processor.process([ended, letter("r#1", "b")])
    (second,), _ = processor.process([letter("r#1", "c")])
    assert [choice.index for choice in first.outputs] == [0, 1]
    assert [(choice.index, choice.text) for choice in second.outputs] == [(1, "c")]
    output, running = processor.abort("r")
    assert [(choice.index, choice.text) for choice in output.outputs] == [(1, "")]
    assert (output.finished, running) == (True, ["r#1"])


def test_prompt_logprobs_are_in_one_delta_only():
    processor = processor_with(output_kind=DELTA, prompt_logprobs=0, prompt=(1,))
    told = [processor.process([letter("r", text)]).outputs[0].prompt_logprobs for text in "ab"]
    assert told == [[None], None]


def test_prompt_logprobs_are_told_when_they_are_there():
    processor = processor_with(("r#0", "r#1"), output_kind=DELTA, prompt_logprobs=0, prompt=(1, 2))
    (early,), _ = processor.process([letter("r#1", "x")])
    (later,), _ = processor.process([letter("r#0", "a", prompt_logprobs=(TokenLogprobs(-1.0, 1),))])
    assert early.prompt_logprobs is None
    assert later.prompt_logprobs == [None, {2: Logprob(-1.0, 1, "\x02")}]


def test_final_only_says_nothing_until_every_choice_has_ended():
    processor = processor_with(("r#0", "r#1"), output_kind=FINAL_ONLY, logprobs=0)
    assert processor.process([letter("r#0", "a"), letter("r#1", "x")]).outputs == []
    assert processor.process([letter("r#0", "b", finish_reason=FinishReason.LENGTH)]).outputs == []
    (output,), _ = processor.process([letter("r#1", "y", finish_reason=FinishReason.LENGTH)])
    assert [(choice.text, len(choice.logprobs)) for choice in output.outputs] == [("ab", 2), ("xy", 2)]
    assert output.finished
    assert "r" not in processor


def test_final_only_tells_an_abort():
    processor = processor_with(output_kind=FINAL_ONLY)
    processor.process([letter("r", "a")])
    output, _ = processor.abort("r")
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("a", "abort")


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_all_kinds_tell_the_same_in_the_end(kind):
    processor = processor_with(output_kind=kind, logprobs=0, stop=["dx"])
    updates = [letter("r", text) for text in "abcd"] + [letter("r", "e", finish_reason=FinishReason.LENGTH)]
    outputs = [output for update in updates for output in processor.process([update]).outputs]
    told = join_deltas(outputs) if kind is DELTA else outputs[-1]
    choice = told.outputs[0]
    assert (told.finished, choice.finished(), choice.text) == (True, True, "abcde")
    assert choice.token_ids == list(b"abcde")
    assert len(choice.logprobs) == 5
