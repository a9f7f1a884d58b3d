"""`LLM` on a tiny random model and the reference kernels: prompts in every form, order, errors, Ctrl-C."""

import io
import os
import signal
import threading

import pytest

from octavo.engine.tokenizer import LITERAL_MARK
from octavo.errors import (
    CapacityError,
    ConfigError,
    ContextLengthError,
    EngineDeadError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from octavo.llm import LLM
from octavo.models.literal_text import MARK
from octavo.sampling_params import RequestOutputKind, SamplingParams

SHORT = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(make_llm):
    return make_llm()


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def test_the_forms_of_a_prompt_give_the_same(llm):
    ids = llm.get_tokenizer().encode("the cat")
    prompts = ["the cat", {"prompt": "the cat"}, {"prompt_token_ids": ids}]
    outputs = llm.generate(prompts, SHORT, use_tqdm=False)
    assert len(set(texts(outputs))) == 1
    assert [output.prompt for output in outputs] == ["the cat", "the cat", None]
    assert all(list(output.prompt_token_ids) == ids for output in outputs)
    assert all(len(output.outputs[0].token_ids) == 4 for output in outputs)


def test_one_prompt_needs_no_list(llm):
    for prompt in ("the cat", {"prompt": "the cat"}):
        (output,) = llm.generate(prompt, SHORT, use_tqdm=False)
        assert output.finished


def test_outputs_come_in_the_order_of_the_prompts(llm):
    lengths = [9, 1, 5, 2, 7]
    params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in lengths]
    prompts = [f"prompt {i}" for i in range(5)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.prompt for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == lengths


def test_no_prompts_no_outputs(llm):
    assert llm.generate([], SHORT, use_tqdm=False) == []


def test_the_default_parameters(llm):
    (output,) = llm.generate("the cat", use_tqdm=False)
    assert 1 <= len(output.outputs[0].token_ids) <= SamplingParams().max_tokens
    assert output.outputs[0].seed is not None
    assert llm.get_default_sampling_params() == SamplingParams()


def test_a_drawn_seed_reproduces_its_text(llm):
    (first,) = llm.generate("the cat", SamplingParams(temperature=1.5, max_tokens=8), use_tqdm=False)
    again = SamplingParams(temperature=1.5, max_tokens=8, seed=first.outputs[0].seed)
    (second,) = llm.generate("the cat", again, use_tqdm=False)
    assert second.outputs[0].token_ids == first.outputs[0].token_ids


def test_n_logprobs_and_prompt_logprobs(llm):
    params = SamplingParams(n=3, seed=1, max_tokens=5, ignore_eos=True, logprobs=2, prompt_logprobs=1)
    (output,) = llm.generate("the cat sat", params, use_tqdm=False)
    assert len(output.outputs) == 3
    assert len({tuple(choice.token_ids) for choice in output.outputs}) > 1
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    for choice in output.outputs:
        sampled = [
            entry[token].logprob for token, entry in zip(choice.token_ids, choice.logprobs, strict=True)
        ]
        assert choice.cumulative_logprob == pytest.approx(sum(sampled))
        assert all(2 <= len(entry) <= 3 for entry in choice.logprobs)


def test_chat_renders_the_template_and_opens_the_answer(llm):
    conversation = [{"role": "user", "content": "the cat"}]
    (single,) = llm.chat(conversation, SHORT, use_tqdm=False)
    both = llm.chat([conversation, conversation], SHORT, use_tqdm=False)
    assert single.prompt.endswith("<|im_start|>assistant\n")
    assert texts([single, *both]) == texts([single]) * 3
    (closed,) = llm.chat(conversation, SHORT, use_tqdm=False, add_generation_prompt=False)
    assert closed.prompt.endswith("<|im_end|>\n")
    assert (
        single.prompt_token_ids[0]
        == llm.get_tokenizer().encode("<|im_start|>", add_special_tokens=False, parse_special=True)[0]
    )


def test_control_tokens_typed_into_a_message_stay_text(llm):
    (typed,) = llm.chat([{"role": "user", "content": "a<|im_end|>b"}], SHORT, use_tqdm=False)
    assert "a<|im_end|>b" in typed.prompt
    end_ids = llm.get_tokenizer().encode("<|im_end|>", add_special_tokens=False, parse_special=True)
    (plain,) = llm.chat([{"role": "user", "content": "ab"}], SHORT, use_tqdm=False)
    assert len(end_ids) == 1
    assert typed.prompt_token_ids.count(end_ids[0]) == plain.prompt_token_ids.count(end_ids[0])
    assert LITERAL_MARK == MARK


def test_chat_with_a_template_of_its_own(llm):
    conversation = [{"role": "user", "content": "the cat"}]
    (output,) = llm.chat(conversation, SHORT, use_tqdm=False, chat_template="{{ messages[0].content }}!")
    assert output.prompt == "the cat!"
    with pytest.raises(InvalidRequestError, match="chat_template: the chat template is not valid"):
        llm.chat(conversation, SHORT, use_tqdm=False, chat_template="{% if %}")


def test_chat_goes_on_with_the_last_message(llm):
    conversation = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on"}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    (output,) = llm.chat(conversation, SHORT, use_tqdm=False, **options)
    assert output.prompt.endswith("<|im_start|>assistant\nsat on")


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_a_call_returns_everything_whatever_kind_of_output_is_asked_for(llm, kind):
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, output_kind=kind)
    assert texts(llm.generate(["the cat"], [params], use_tqdm=False)) == texts(
        llm.generate("the cat", SHORT, use_tqdm=False)
    )


def test_parts_of_text_are_one_text(llm):
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "cat"}]
    (joined,) = llm.chat([{"role": "user", "content": "the\ncat"}], SHORT, use_tqdm=False)
    (in_parts,) = llm.chat([{"role": "user", "content": parts}], SHORT, use_tqdm=False)
    assert in_parts.prompt == joined.prompt


@pytest.mark.parametrize(
    ("message", "error", "reason"),
    [
        ({"content": "Hi"}, InvalidRequestError, r"messages\[1\] has no role;"),
        ({"role": "user"}, InvalidRequestError, r"messages\[1\] has no content;"),
        ({"role": "user", "content": None}, InvalidRequestError, r"messages\[1\] has no content;"),
        (
            {"role": "user", "content": [{"type": "text"}]},
            InvalidRequestError,
            r"messages\[1\] holds a part without a text",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio"}]},
            UnsupportedFeatureError,
            r"messages\[1\] holds a part of type 'input_audio'",
        ),
    ],
)
def test_a_message_that_is_not_text_is_refused_by_its_index(llm, message, error, reason):
    with pytest.raises(error, match=reason):
        llm.chat([{"role": "system", "content": "Be brief."}, message], SHORT, use_tqdm=False)


def test_a_turn_that_only_calls_tools_needs_no_content(llm):
    calls = {"role": "assistant", "tool_calls": [{"function": {"name": "look_up", "arguments": {}}}]}
    (output,) = llm.chat([calls], SHORT, use_tqdm=False, chat_template="{{ messages[0].role }}")
    assert output.prompt == "assistant"


@pytest.mark.parametrize("messages", [[], [[]]])
def test_an_empty_conversation_is_refused(llm, messages):
    with pytest.raises(InvalidRequestError):
        llm.chat(messages, SHORT, use_tqdm=False)


def test_a_second_time_comes_from_the_cache_until_it_is_reset(make_llm):
    llm = make_llm()
    prompt = "the cat " * 12
    counts = [llm.generate(prompt, SHORT, use_tqdm=False)[0].num_cached_tokens for _ in range(2)]
    assert llm.reset_prefix_cache()
    counts += [llm.generate(prompt, SHORT, use_tqdm=False)[0].num_cached_tokens]
    assert counts[0] == counts[2] == 0
    assert counts[1] >= 16


def test_more_prompts_than_the_queue_holds(make_llm):
    llm = make_llm(max_waiting_requests=3, max_num_seqs=2)
    outputs = llm.generate([f"prompt {i}" for i in range(20)], SHORT, use_tqdm=False)
    assert [output.prompt for output in outputs] == [f"prompt {i}" for i in range(20)]


def test_more_choices_than_the_queue_holds_is_an_error(make_llm):
    llm = make_llm(max_waiting_requests=3)
    with pytest.raises(InvalidRequestError, match="n is 4, but at most 3"):
        llm.generate("the cat", SamplingParams(n=4), use_tqdm=False)


def test_a_refused_prompt_ends_the_call_and_leaves_nothing_behind(llm):
    with pytest.raises(ContextLengthError):
        llm.generate(["fine", "x" * 5000], SHORT, use_tqdm=False)
    assert texts(llm.generate("the cat", SHORT, use_tqdm=False)) == texts(
        llm.generate("the cat", SHORT, use_tqdm=False)
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [({"sampling_params": [SHORT]}, "sampling_params"), ({"priority": [1, 2, 3]}, "priority")],
)
def test_lists_must_have_one_entry_per_prompt(llm, options, name):
    with pytest.raises(InvalidRequestError, match=rf"{name} has \d entries for 2 prompts"):
        llm.generate(["a", "b"], use_tqdm=False, **options)


def test_ctrl_c_ends_the_call_and_the_llm_goes_on(make_llm, monkeypatch):
    llm = make_llm()
    steps = 0
    step = llm._engine.step

    def step_with_ctrl_c():
        nonlocal steps
        steps += 1
        if steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step()

    expected = texts(llm.generate("the cat", SHORT, use_tqdm=False))
    monkeypatch.setattr(llm._engine, "step", step_with_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["one", "two"], SamplingParams(max_tokens=100, ignore_eos=True), use_tqdm=False)
    assert steps - 4 <= 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert llm._engine.request_ids == []
    assert texts(llm.generate("the cat", SHORT, use_tqdm=False)) == expected


@pytest.mark.parametrize("params", [5, {"temperature": 0}, [None], [SHORT, 5][1:], False])
def test_parameters_of_another_kind_are_refused(llm, params):
    with pytest.raises(InvalidRequestError, match="sampling_params must be SamplingParams"):
        llm.generate(["a"], params, use_tqdm=False)


def test_no_parameters_for_a_prompt_is_one_list_too_short(llm):
    with pytest.raises(InvalidRequestError, match="sampling_params has 0 entries for 1 prompts"):
        llm.generate(["a"], [], use_tqdm=False)


def test_messages_from_an_iterator_are_not_lost(llm):
    message = {"role": "user", "content": "the cat"}
    assert texts(llm.chat(iter([message]), SHORT, use_tqdm=False)) == texts(
        llm.chat([message], SHORT, use_tqdm=False)
    )


def test_another_thread_is_refused_and_does_no_harm(make_llm, monkeypatch):
    llm = make_llm()
    is_under_way, may_go_on = threading.Event(), threading.Event()
    step, outputs = llm._engine.step, []

    def slow_step():
        is_under_way.set()
        assert may_go_on.wait(30)
        return step()

    monkeypatch.setattr(llm._engine, "step", slow_step)
    thread = threading.Thread(
        target=lambda: outputs.extend(llm.generate(["one", "two"], SHORT, use_tqdm=False))
    )
    thread.start()
    assert is_under_way.wait(30)
    for call in (lambda: llm.generate("x", SHORT, use_tqdm=False), llm.reset_prefix_cache, llm.close):
        with pytest.raises(CapacityError, match="another thread is using this LLM"):
            call()
    may_go_on.set()
    thread.join(30)
    assert [output.finished for output in outputs] == [True, True]
    assert texts(llm.generate(["one", "two"], SHORT, use_tqdm=False)) == texts(outputs)


def test_pressing_ctrl_c_again_and_again_does_no_harm_either(make_llm, monkeypatch):
    llm = make_llm()
    expected = texts(llm.generate("the cat", SHORT, use_tqdm=False))
    submit = llm._engine.core.runner.submit

    def submit_with_ctrl_c(output):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
        return submit(output)

    monkeypatch.setattr(llm._engine.core.runner, "submit", submit_with_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["one", "two"], SHORT, use_tqdm=False)
    monkeypatch.undo()
    assert llm._engine.request_ids == []
    assert texts(llm.generate("the cat", SHORT, use_tqdm=False)) == expected


def test_a_progress_bar_that_cannot_be_drawn_ends_nothing(llm, monkeypatch):
    for stderr in (FullDisk(), None):
        monkeypatch.setattr("sys.stderr", stderr)
        assert texts(llm.generate("the cat", SHORT, use_tqdm=True))


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


def test_the_progress_bar_goes_to_standard_error_and_counts(llm, capsys):
    llm.generate(["one", "two"], SHORT)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err
    assert "tok/s" in captured.err
    llm.generate("one", SHORT, use_tqdm=False)
    assert capsys.readouterr().err == ""


def test_options_are_checked_before_anything_is_loaded():
    with pytest.raises(ConfigError, match=r"there is no option block_sise; did you mean block_size"):
        LLM(model="no-such-file.gguf", block_sise=16)
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        LLM(model="no-such-file.gguf", tensor_parallel_size=2)


def test_the_configuration_can_be_read(llm):
    assert (llm.config.num_blocks, llm.config.max_model_len, llm.config.kernels) == (64, 256, "reference")


def test_after_closing_nothing_is_answered(tiny_llama):
    with LLM(model=tiny_llama(), kernels="reference", num_blocks=64) as llm:
        assert llm.generate("a", SHORT, use_tqdm=False)
    llm.close()
    with pytest.raises(EngineDeadError, match="closed"):
        llm.generate("a", SHORT, use_tqdm=False)
