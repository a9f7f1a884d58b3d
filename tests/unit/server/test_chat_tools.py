"""Tools and reasoning over a socket: a script plays answers of models that call tools."""

import json

import pytest
from async_harness import spell
from engine_fakes import WillingGrammars
from parsed_answers import BY_NAME
from server_harness import serving
from tool_answers import ANSWERS, TOOLS

from octavo.server.protocol.chat import ChatCompletion, ChatCompletionChunk

DECLARED = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
MESSAGES = [{"role": "user", "content": "hello"}]
WITH_CALLS = [
    pytest.param(family, answer, id=f"{family}-{answer.title}")
    for family, answers in ANSWERS.items()
    for answer in answers
    if len(answer.calls) > 1
]
ROOM = {"max_model_len": 4000, "num_blocks": 1200, "max_num_batched_tokens": 1500}


def streamed(server, **body):
    *chunks, done = server.events("/v1/chat/completions", messages=MESSAGES, max_tokens=1000, **body)
    assert done == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(chunk, strict=True, extra="forbid") for chunk in chunks]
    return [choice for chunk in chunks for choice in chunk.choices]


@pytest.mark.parametrize(("family", "answer"), WITH_CALLS)
def test_calls_come_out_in_openais_shape_streamed_or_not(family, answer):
    sign = BY_NAME[family].signs[0]
    with serving(spell(answer.text), chat_template=sign, **ROOM) as server:
        whole = server.chat(tools=DECLARED, max_tokens=1000).json()
        [choice] = ChatCompletion.model_validate(whole).choices
        calls = [
            (call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls
        ]
        assert tuple(calls) == answer.calls
        assert choice.message.content == (answer.content or None)
        assert choice.finish_reason == "tool_calls"
        assert len({call.id for call in choice.message.tool_calls}) == len(calls)

        choices = streamed(server, tools=DECLARED)
        assert "".join(choice.delta.content or "" for choice in choices) == answer.content
        joined = []
        for delta in (call for choice in choices for call in choice.delta.tool_calls or ()):
            if delta.id:
                assert (delta.index, delta.type) == (len(joined), "function")
                joined.append([delta.function.name, ""])
            assert delta.index == len(joined) - 1
            joined[-1][1] += delta.function.arguments
        assert joined == [[c.function.name, c.function.arguments] for c in choice.message.tool_calls]
        assert [choice.finish_reason for choice in choices][-1] == "tool_calls"
        assert {choice.finish_reason for choice in choices[:-1]} == {None}


def test_a_call_cut_short_by_max_tokens_ends_with_length():
    answer = '<tool_call>{"name": "run", "arguments": {"code": "x"}}</tool_call>'
    with serving(spell(answer), chat_template="<tool_call>", **ROOM) as server:
        [choice] = server.chat(tools=DECLARED, max_tokens=50).json()["choices"]
        assert choice["finish_reason"] == "length"
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "run"


def test_every_choice_is_read_by_itself():
    answer = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    with serving(spell(answer), chat_template="<tool_call>", **ROOM) as server:
        whole = server.chat(tools=DECLARED, max_tokens=100, n=3).json()
        assert [len(choice["message"]["tool_calls"]) for choice in whole["choices"]] == [1, 1, 1]
        choices = streamed(server, tools=DECLARED, n=3)
        ends = {choice.index: choice.finish_reason for choice in choices if choice.finish_reason}
        assert ends == dict.fromkeys(range(3), "tool_calls")


def test_without_tools_markup_is_text():
    answer = '<tool_call>{"name": "get_time"}</tool_call>'
    with serving(spell(answer), chat_template="<tool_call>", **ROOM) as server:
        for options in ({}, {"tools": []}, {"tools": DECLARED, "tool_choice": "none"}):
            [choice] = server.chat(max_tokens=100, **options).json()["choices"]
            assert choice["message"] == {"role": "assistant", "content": answer, "refusal": None}
            assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_time"}}], ids=["required", "named"]
)
def test_a_forced_call_is_asked_for_by_a_grammar(choice):
    grammars = WillingGrammars()
    answer = '[{"name":"get_time","arguments":{}}]'
    with serving(spell(answer), chat_template="<tool_call>", grammars=grammars, **ROOM) as server:
        [answered] = server.chat(tools=DECLARED, tool_choice=choice, max_tokens=100).json()["choices"]
        [call] = answered["message"]["tool_calls"]
        assert call["function"] == {"name": "get_time", "arguments": "{}"}
        assert answered["message"]["content"] is None
        assert answered["finish_reason"] == "tool_calls"
        [params] = grammars.asked
        assert '"get_time"' in params.json


def test_thoughts_are_a_part_of_their_own_streamed_or_not():
    template = "{{ '<think>' }} </think>"
    with serving(spell("<think>\nHm.\n</think>\n\nYes."), chat_template=template, **ROOM) as server:
        [choice] = server.chat(max_tokens=100).json()["choices"]
        assert choice["message"]["reasoning_content"] == "Hm."
        assert choice["message"]["content"] == "Yes."
        choices = streamed(server)
        assert "".join(choice.delta.reasoning_content or "" for choice in choices) == "Hm."
        assert "".join(choice.delta.content or "" for choice in choices) == "Yes."


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": DECLARED, "tool_choice": {"type": "function", "function": {"name": "fly"}}},
            "tool_choice",
        ),
        ({"tools": DECLARED, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "not a name"}}]}, "tools"),
        ({"tools": DECLARED * 60}, "tools"),
    ],
)
def test_wrong_tools_are_refused_with_the_field(options, param):
    with serving(spell("x"), **ROOM) as server:
        response = server.chat(**options)
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith(param)


def test_results_of_tools_reach_the_template():
    call = {"id": "1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    with serving(spell("x"), **ROOM) as server:
        response = server.post("/v1/chat/completions", messages=messages, tools=DECLARED)
        assert response.status_code == 200, response.text
