"""``/v1/chat/completions`` over a socket."""

import pytest
from async_harness import endless, spell
from engine_fakes import EOS, piece
from server_harness import serving

from octavo.server.protocol.chat import ChatCompletion, ChatCompletionChunk


def test_an_answer_has_the_shape_of_the_openai_api():
    with serving(spell("Hello!")) as server:
        response = server.chat("hi", max_tokens=20, seed=5)
        answer = ChatCompletion.model_validate(response.json())
        assert response.status_code == 200
        assert response.headers["x-request-id"] == answer.id
        [choice] = answer.choices
        assert (choice.message.content, choice.finish_reason, choice.seed) == ("Hello!", "stop", 5)
        assert answer.model == "byte-model"
        assert (answer.usage.completion_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (7, 0)
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + 7


def test_the_template_writes_the_conversation_out():
    with serving(spell("x")) as server:
        tokens = server.post("/tokenize", messages=[{"role": "user", "content": "hi"}]).json()
        answer = server.chat("hi").json()
        assert bytes(tokens["tokens"]) == b"user: hi\nassistant: "
        assert answer["usage"]["prompt_tokens"] == tokens["count"]


@pytest.mark.parametrize("usage", [None, "last", "continuous"])
def test_a_stream_tells_the_same_as_an_answer_in_one_piece(usage):
    options = {
        None: {},
        "last": {"stream_options": {"include_usage": True}},
        "continuous": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    }[usage]
    with serving(spell("Grüße, 日本")) as server:
        whole = server.chat(max_tokens=50).json()
        *chunks, done = server.events(
            "/v1/chat/completions", messages=[{"role": "user", "content": "hello"}], max_tokens=50, **options
        )
        assert done == "[DONE]"
        chunks = [ChatCompletionChunk.model_validate(chunk, strict=True, extra="forbid") for chunk in chunks]
        told = [chunk for chunk in chunks if chunk.choices]
        assert told[0].choices[0].delta.role == "assistant"
        text = "".join(chunk.choices[0].delta.content or "" for chunk in told)
        assert text == whole["choices"][0]["message"]["content"] == "Grüße, 日本"
        assert [chunk.choices[0].finish_reason for chunk in told][-1] == "stop"
        assert {chunk.choices[0].finish_reason for chunk in told[:-1]} == {None}
        if usage is None:
            assert all(chunk.usage is None for chunk in chunks)
        else:
            cached = chunks[-1].usage.prompt_tokens_details.cached_tokens
            assert chunks[-1].choices == []
            assert cached > 0, "the second request has the same prompt"
            assert chunks[-1].usage.completion_tokens == whole["usage"]["completion_tokens"]
            assert all((chunk.usage is not None) == (usage == "continuous") for chunk in told)


def test_stop_strings_never_show_and_are_named():
    with serving(spell("one stop two")) as server:
        whole = server.chat(max_tokens=50, stop=["stop", "never"]).json()["choices"][0]
        assert (whole["message"]["content"], whole["stop_reason"]) == ("one ", "stop")
        events = server.events(
            "/v1/chat/completions", messages=[{"role": "user", "content": "x"}], stop="stop", max_tokens=50
        )
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "one "
        kept = server.chat(max_tokens=50, stop="stop", include_stop_str_in_output=True).json()["choices"][0]
        assert kept["message"]["content"] == "one stop"


def test_all_choices_come_with_their_index():
    with serving(lambda request_id, position: ord(request_id[-1]) if position < 3 else EOS) as server:
        whole = server.chat(n=3, max_tokens=5).json()
        assert [(c["index"], c["message"]["content"]) for c in whole["choices"]] == [
            (0, "000"),
            (1, "111"),
            (2, "222"),
        ]
        texts = {0: "", 1: "", 2: ""}
        for event in server.events(
            "/v1/chat/completions", messages=[{"role": "user", "content": "x"}], n=3, max_tokens=5
        )[:-1]:
            texts[event["choices"][0]["index"]] += event["choices"][0]["delta"].get("content", "")
        assert texts == {0: "000", 1: "111", 2: "222"}
        assert whole["usage"]["completion_tokens"] == 12


def test_the_newer_name_of_max_tokens_counts():
    with serving(endless) as server:
        answer = server.chat(max_tokens=9, max_completion_tokens=3).json()
        assert (answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]) == (
            "abc",
            "length",
        )


def test_without_a_bound_the_context_is_one():
    with serving(endless) as server:
        usage = server.chat().json()["usage"]
        assert usage["total_tokens"] == 200


def test_special_tokens_are_no_text():
    with serving(lambda _, position: [piece("<turn>"), ord("a"), EOS][position]) as server:
        assert server.chat(max_tokens=5).json()["choices"][0]["message"]["content"] == "a"
