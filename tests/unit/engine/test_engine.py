"""Requests in, outputs out: texts, stops, choices, aborts, refusals."""

import itertools

import pytest
from engine_fakes import EOS, VOCAB_SIZE, make_engine, piece, run_to_end

from octavo.engine.queue_place import QueuePlace
from octavo.errors import ContextLengthError, InvalidRequestError, QueueFullError
from octavo.outputs import CompletionOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams

PROMPT = list(b"a prompt of some length")


def spell(text):
    """A script that writes ``text``, then the end-of-sequence token."""
    tokens = [*text.encode(), EOS]
    return lambda request_id, position: tokens[min(position, len(tokens) - 1)]


def tokens(*token_ids):
    return lambda request_id, position: token_ids[min(position, len(token_ids) - 1)]


def complete(script, *, prompt=PROMPT, fake_options=None, **params):
    """The only output of one request, and the engine it ran on."""
    fake = make_engine(script, **(fake_options or {}))
    fake.engine.add_request("r", prompt, SamplingParams(**params))
    output = run_to_end(fake.engine)["r"]
    assert fake.kv.num_free_blocks == fake.kv.num_blocks
    return output


def test_an_answer_ends_with_the_end_of_sequence_token():
    output = complete(spell("Hello"), max_tokens=50)
    (choice,) = output.outputs
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("Hello", "stop", None)
    assert choice.token_ids == [*b"Hello", EOS]
    assert output.prompt_token_ids == tuple(PROMPT)
    assert output.finished


def test_the_end_of_sequence_token_shows_only_when_asked_for():
    shown = complete(spell("Hi"), max_tokens=9, skip_special_tokens=False, include_stop_str_in_output=True)
    assert shown.outputs[0].text == "Hi<eos>"
    assert complete(spell("Hi"), max_tokens=9, skip_special_tokens=False).outputs[0].text == "Hi"


def test_without_max_tokens_the_context_is_the_limit():
    output = complete(tokens(ord("a")), max_tokens=None, fake_options={"max_model_len": 60})
    assert output.outputs[0].finish_reason == "length"
    assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 60


def test_ignore_eos_goes_on():
    output = complete(spell("Hi"), max_tokens=5, ignore_eos=True)
    assert output.outputs[0].token_ids == [*b"Hi", EOS, EOS, EOS]
    assert output.outputs[0].finish_reason == "length"


def test_a_stop_token_is_named_and_is_no_part_of_the_text():
    stop = piece("stop")
    output = complete(tokens(ord("a"), stop), stop_token_ids=[stop])
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("a", stop)
    assert (
        complete(tokens(ord("a"), stop), stop_token_ids=[stop], include_stop_str_in_output=True)
        .outputs[0]
        .text
        == "astop"
    )


def test_a_stop_string_over_token_borders_frees_the_blocks_at_once():
    fake = make_engine(tokens(ord("x"), piece("ST"), piece("OP!"), ord("y")))
    fake.engine.add_request("r", PROMPT, SamplingParams(stop=["STOP"], max_tokens=50))
    output = run_to_end(fake.engine)["r"]
    choice = output.outputs[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("x", "stop", "STOP")
    assert choice.token_ids == [ord("x"), piece("ST"), piece("OP!")]
    assert fake.kv.num_free_blocks == fake.kv.num_blocks
    assert not fake.engine.has_unfinished_requests


def test_a_stop_string_in_the_last_token_counts_before_the_length():
    output = complete(tokens(ord("x"), piece("STOP!")), stop=["STOP"], max_tokens=2)
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("x", "stop")


def test_min_tokens_holds_back_stop_strings_as_well():
    output = complete(tokens(piece("stop")), stop=["stop"], min_tokens=3, max_tokens=9)
    assert output.outputs[0].token_ids == [piece("stop")] * 3
    assert output.outputs[0].text == "stopstop"


def test_text_held_back_for_a_stop_string_comes_out_at_the_end():
    output = complete(tokens(*b"abST"), stop=["STOP"], max_tokens=4)
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("abST", "length")


def test_every_output_adds_to_the_text_before():
    fake = make_engine(tokens(*"naïve STOPwatch 日本語 ".encode(), 0xE6, ord("!")))
    fake.engine.add_request("r", PROMPT, SamplingParams(stop=["STOP!"], max_tokens=40))
    texts = [""]
    while fake.engine.has_unfinished_requests:
        texts += [output.outputs[0].text for output in fake.engine.step()]
    assert len(texts) > 20
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert texts[-1].startswith("naïve STOPwatch 日本語 \ufffd!")


def test_outputs_of_earlier_steps_never_change():
    fake = make_engine(spell("Hello"))
    fake.engine.add_request("r", PROMPT, SamplingParams(max_tokens=50))
    first = fake.engine.step()[0]
    before = (first.outputs[0].text, list(first.outputs[0].token_ids))
    run_to_end(fake.engine)
    assert (first.outputs[0].text, first.outputs[0].token_ids) == before == ("H", [ord("H")])


def test_n_choices_are_joined_into_one_output():
    texts = {"r#0": b"zero", "r#1": b"one", "r#2": b"two"}
    fake = make_engine({name: [*text, EOS] for name, text in texts.items()})
    fake.engine.add_request("r", PROMPT, SamplingParams(n=3, max_tokens=20))
    output = run_to_end(fake.engine)["r"]
    assert [choice.text for choice in output.outputs] == ["zero", "one", "two"]
    assert [choice.index for choice in output.outputs] == [0, 1, 2]
    assert output.finished
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_a_stop_string_ends_one_choice_and_not_the_others():
    fake = make_engine({"r#0": [*b"aSTOPbbb", EOS], "r#1": [*b"cccccccccc", EOS]})
    fake.engine.add_request("r", PROMPT, SamplingParams(n=2, max_tokens=30, stop=["STOP"]))
    output = run_to_end(fake.engine)["r"]
    assert [choice.text for choice in output.outputs] == ["a", "cccccccccc"]


def test_a_seed_is_drawn_and_returned():
    drawn = complete(spell("x"), fake_options={"seeds": lambda: 12345})
    assert drawn.outputs[0].seed == 12345
    assert complete(spell("x"), seed=99).outputs[0].seed == 99


def test_a_request_that_fails_fails_alone():
    fake = make_engine(
        spell("fine"), runner_options={"request_errors": {"bad": "non-finite logits at position 9"}}
    )
    for name in ("good", "bad", "better"):
        fake.engine.add_request(name, [*name.encode(), *PROMPT], SamplingParams(max_tokens=20))
    outputs = run_to_end(fake.engine)
    assert outputs["bad"].outputs[0].finish_reason == "error"
    assert outputs["bad"].outputs[0].error == "non-finite logits at position 9"
    assert [outputs[name].outputs[0].text for name in ("good", "better")] == ["fine", "fine"]
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_cached_tokens_are_reported():
    fake = make_engine(spell("x"))
    for name in ("first", "second"):
        fake.engine.add_request(name, PROMPT, SamplingParams())
        output = run_to_end(fake.engine)[name]
    assert output.num_cached_tokens == (len(PROMPT) - 1) // 4 * 4


def test_a_cache_salt_keeps_tenants_apart():
    fake = make_engine(spell("x"))
    cached = {}
    for name, salt in [("a", "one"), ("b", "two"), ("c", None), ("d", "one")]:
        fake.engine.add_request(name, PROMPT, SamplingParams(), cache_salt=salt)
        cached[name] = run_to_end(fake.engine)[name].num_cached_tokens
    assert cached == {"a": 0, "b": 0, "c": 0, "d": 20}


@pytest.mark.parametrize("num_steps", range(8))
def test_abort_at_any_moment_gives_every_block_back(num_steps):
    fake = make_engine(spell("a long enough answer"), max_num_batched_tokens=9)
    fake.engine.add_request("r", PROMPT, SamplingParams(n=2, max_tokens=30))
    fake.engine.add_request("other", PROMPT[::-1], SamplingParams(max_tokens=30))
    for _ in range(num_steps):
        fake.engine.step()
    output = fake.engine.abort("r")
    assert [choice.finish_reason for choice in output.outputs] == ["abort", "abort"]
    assert fake.engine.abort("r") is None
    assert run_to_end(fake.engine)["other"].outputs[0].text == "a long enough answer"
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_abort_of_a_choice_that_has_ended_keeps_its_end():
    fake = make_engine({"r#0": [EOS], "r#1": [ord("b")]})
    fake.engine.add_request("r", PROMPT, SamplingParams(n=2, max_tokens=30))
    for _ in range(4):
        fake.engine.step()
    output = fake.engine.abort("r")
    assert [choice.finish_reason for choice in output.outputs] == ["stop", "abort"]
    assert output.outputs[1].text.startswith("b")


def test_abort_releases_text_that_was_held_back():
    fake = make_engine(tokens(*b"abSTO"))
    fake.engine.add_request("r", PROMPT, SamplingParams(stop=["STOP"], max_tokens=30))
    for _ in range(5):
        fake.engine.step()
    assert fake.engine.abort("r").outputs[0].text == "abSTO"


def test_abort_of_an_unknown_request_is_ignored():
    assert make_engine(spell("x")).engine.abort("nobody") is None


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], {}, "the prompt is empty"),
        (
            [1, VOCAB_SIZE],
            {},
            f"prompt_token_ids must hold token ids between 0 and {VOCAB_SIZE - 1}, got 265",
        ),
        ([-1], {}, "got -1"),
        ([1.0], {}, r"got 1\.0"),
        ([True], {}, "got True"),
        ("text", {}, "must be a list of integers, got a str"),
        ([1], {"stop_token_ids": [999]}, "stop_token_ids must hold token ids between 0 and 264, got 999"),
        ([1], {"logit_bias": {999: 1.0}}, "logit_bias must hold token ids between 0 and 264, got 999"),
    ],
)
def test_a_wrong_request_is_refused_and_leaves_nothing_behind(prompt, params, message):
    fake = make_engine(spell("x"))
    with pytest.raises(InvalidRequestError, match=message):
        fake.engine.add_request("r", prompt, SamplingParams(**params))
    assert not fake.engine.has_unfinished_requests
    assert fake.engine.request_ids == []


@pytest.mark.parametrize("salt", ["", "a\nb", "\ud800", 7])
def test_a_salt_that_is_no_text_is_refused(salt):
    with pytest.raises(InvalidRequestError, match="cache_salt must be a string of printable characters"):
        make_engine(spell("x")).engine.add_request("r", [1], SamplingParams(), cache_salt=salt)


def test_a_prompt_that_never_fits_is_refused_with_the_numbers():
    fake = make_engine(spell("x"), max_model_len=16)
    with pytest.raises(ContextLengthError, match=r"has 23 tokens.*16"):
        fake.engine.add_request("r", PROMPT, SamplingParams())
    assert fake.engine.request_ids == []


def test_an_id_can_be_used_again_only_after_its_request_has_ended():
    fake = make_engine(spell("x"))
    fake.engine.add_request("r", PROMPT, SamplingParams())
    with pytest.raises(InvalidRequestError, match="request id 'r' is in use"):
        fake.engine.add_request("r", PROMPT, SamplingParams())
    run_to_end(fake.engine)
    fake.engine.add_request("r", PROMPT, SamplingParams())
    assert run_to_end(fake.engine)["r"].finished


def test_siblings_are_added_all_or_none():
    fake = make_engine(spell("x"), max_waiting_requests=3)
    fake.engine.add_request("a", PROMPT, SamplingParams())
    with pytest.raises(QueueFullError):
        fake.engine.add_request("b", PROMPT, SamplingParams(n=3))
    fake.engine.add_request("c", PROMPT, SamplingParams(n=2))
    assert set(run_to_end(fake.engine)) == {"a", "c"}


def test_reset_prefix_cache_forgets_and_refuses_while_blocks_are_in_use():
    fake = make_engine(spell("hello"))
    fake.engine.add_request("a", PROMPT, SamplingParams())
    fake.engine.step()
    assert fake.engine.reset_prefix_cache() is False
    run_to_end(fake.engine)
    assert fake.engine.reset_prefix_cache() is True
    fake.engine.add_request("b", PROMPT, SamplingParams())
    assert run_to_end(fake.engine)["b"].num_cached_tokens == 0


def test_twelve_blocks_serve_many_requests_to_the_end():
    fake = make_engine(spell("a somewhat longer answer"), num_blocks=12, max_model_len=48)
    for i in range(40):
        fake.engine.add_request(f"r{i}", [i, *PROMPT[: i % 15]], SamplingParams(max_tokens=30))
    outputs = run_to_end(fake.engine)
    assert [outputs[f"r{i}"].outputs[0].text for i in range(40)] == ["a somewhat longer answer"] * 40
    assert fake.scheduler.stats.num_preemptions > 0
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_what_cannot_be_prepared_never_reaches_the_scheduler(monkeypatch):
    fake = make_engine(spell("x"))

    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("octavo.engine.output_processor.Choice", fail)
    with pytest.raises(MemoryError):
        fake.engine.add_request("r", PROMPT, SamplingParams())
    assert not fake.engine.has_unfinished_requests


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_the_work_for_an_output_does_not_grow_with_it(kind, monkeypatch):
    copied = []

    def record(self, *arguments, **rest):
        copied.append(sum(len(argument) for argument in arguments if isinstance(argument, list)))
        return original(self, *arguments, **rest)

    original = CompletionOutput.__init__
    monkeypatch.setattr(CompletionOutput, "__init__", record)
    fake = make_engine(tokens(ord("a")))
    fake.engine.add_request("r", PROMPT, SamplingParams(max_tokens=100, logprobs=0, output_kind=kind))
    run_to_end(fake.engine)
    assert len(copied) == (1 if kind is RequestOutputKind.FINAL_ONLY else 100)
    assert max(copied[:-1], default=0) <= 1


def test_reset_prefix_cache_can_take_the_blocks_of_running_requests():
    fake = make_engine(spell("hello"))
    fake.engine.add_request("a", PROMPT, SamplingParams())
    fake.engine.step()
    assert fake.engine.reset_prefix_cache(reset_running_requests=True) is True
    assert fake.kv.num_free_blocks == fake.kv.num_blocks
    assert run_to_end(fake.engine)["a"].outputs[0].text == "hello"


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("other", [list(b"zz"), PROMPT])
def test_a_request_named_like_a_choice_of_another_one_meets_nobody(policy, other):
    """The first choice has ended, so its siblings look for nobody; the stranger runs ahead of them."""
    ends_at_once = {"a#0": [EOS], "a#1": list(b"one"), "a##0": list(b"stranger")}
    fake = make_engine(ends_at_once, scheduling_policy=policy)
    fake.engine.add_request("a", PROMPT, SamplingParams(n=2, max_tokens=3))
    fake.engine.step()
    fake.engine.add_request("a#0", other, SamplingParams(max_tokens=8), place=QueuePlace(-1))
    outputs = run_to_end(fake.engine)
    assert [choice.text for choice in outputs["a"].outputs] == ["", "one"]
    assert outputs["a#0"].outputs[0].text == "stranger"
    assert fake.kv.num_free_blocks == fake.kv.num_blocks


def test_an_abort_ends_nobody_who_is_named_like_a_choice():
    fake = make_engine({"a#0": [EOS], "a#1": [120], "a##0": list(b"stranger")})
    fake.engine.add_request("a", PROMPT, SamplingParams(n=2, max_tokens=90))
    fake.engine.step()
    fake.engine.add_request("a#0", PROMPT, SamplingParams(max_tokens=8))
    fake.engine.step()
    assert [choice.finish_reason for choice in fake.engine.abort("a").outputs] == ["stop", "abort"]
    assert run_to_end(fake.engine)["a#0"].outputs[0].text == "stranger"


@pytest.mark.parametrize("params", [None, 5, {"temperature": 0}])
def test_parameters_must_be_sampling_params(params):
    with pytest.raises(InvalidRequestError, match="sampling_params must be SamplingParams"):
        make_engine(spell("x")).engine.add_request("r", PROMPT, params)


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        ([10**5000], {}),
        (PROMPT, {"stop_token_ids": [10**5000]}),
        (PROMPT, {"logit_bias": {10**5000: 1.0}}),
    ],
    ids=["prompt", "stop", "bias"],
)
def test_a_token_id_too_long_to_be_written_out_is_refused_as_any_other(prompt, params):
    with pytest.raises(InvalidRequestError, match="got an integer of thousands of digits"):
        make_engine(spell("x")).engine.add_request("r", prompt, SamplingParams(**params))
