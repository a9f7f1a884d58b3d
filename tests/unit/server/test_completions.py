"""``/v1/completions`` over a socket."""

import pytest
from async_harness import endless, spell
from server_harness import serving

from octavo.server.protocol.completion import Completion


def test_a_text_is_continued():
    with serving(spell("and so on")) as server:
        answer = Completion.model_validate(server.complete("Once", max_tokens=50).json(), extra="forbid")
        assert [choice.text for choice in answer.choices] == ["and so on"]
        assert answer.usage.prompt_tokens == 4


@pytest.mark.parametrize(
    ("prompt", "num_prompts"),
    [("ab", 1), (["ab"], 1), (["ab", "cde"], 2), ([97, 98], 1), ([[97, 98], [99]], 2)],
)
def test_prompts_are_text_or_tokens_one_or_several(prompt, num_prompts):
    with serving(endless) as server:
        answer = server.complete(prompt, max_tokens=2, n=2).json()
        assert [choice["index"] for choice in answer["choices"]] == list(range(2 * num_prompts))
        assert {choice["text"] for choice in answer["choices"]} == {"ab"}
        assert answer["usage"]["completion_tokens"] == 4 * num_prompts


def test_sixteen_tokens_if_nothing_is_said():
    with serving(endless) as server:
        assert server.complete().json()["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("prompt", ["ab", [97, 98]])
def test_echo_puts_the_prompt_first(prompt):
    with serving(endless) as server:
        assert server.complete(prompt, max_tokens=3, echo=True).json()["choices"][0]["text"] == "ababc"
        events = server.events("/v1/completions", prompt=prompt, max_tokens=3, echo=True)
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "ababc"


def test_echo_without_a_token_more():
    with serving(endless) as server:
        answer = server.complete("ab", max_tokens=0, echo=True).json()
        assert answer["choices"][0]["text"] == "ab"
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 0


def test_a_stream_of_several_prompts_tells_the_same_as_one_piece():
    with serving(spell("Grüße")) as server:
        whole = server.complete(["ab", "cd", "ef"], max_tokens=30, n=2).json()
        texts = dict.fromkeys(range(6), "")
        *events, usage, done = server.events(
            "/v1/completions",
            prompt=["ab", "cd", "ef"],
            max_tokens=30,
            n=2,
            stream_options={"include_usage": True},
        )
        for event in events:
            [choice] = Completion.model_validate(event, extra="forbid").choices
            texts[choice.index] += choice.text
        assert done == "[DONE]"
        assert texts == {choice["index"]: choice["text"] for choice in whole["choices"]}
        assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("suffix", "end", "unsupported_feature"),
        ("best_of", 3, "unsupported_feature"),
        ("max_tokens", 0, "invalid_value"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(field, value, code):
    with serving(endless) as server:
        response = server.complete(**{field: value})
        assert response.status_code == 400
        assert (response.json()["error"]["param"], response.json()["error"]["code"]) == (field, code)


def test_characters_are_never_cut():
    tokens = [0xE6, 0x97, 0xA5, 0xE6, 0x97]
    with serving(lambda _, position: tokens[position % 5]) as server:
        events = server.events("/v1/completions", prompt="x", max_tokens=5)
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "日\ufffd"
