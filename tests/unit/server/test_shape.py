"""Shapes of texts that clients ask for, over a socket: what the engine is asked for in turn."""

import json
import re

import httpx
import pytest
from async_harness import spell
from engine_fakes import WillingGrammars
from server_harness import serving

from octavo.structured_outputs import StructuredOutputsParams

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = {
    "type": "object",
    "properties": {"a": {"enum": [1, 22]}},
    "required": ["a"],
    "additionalProperties": False,
}
CLOSED_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": CLOSED, "strict": True}}
JSON_OBJECT = {"type": "json_object"}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        ({"response_format": JSON_SCHEMA}, {"json": SCHEMA}),
        ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
         {"json": SCHEMA, "disable_any_whitespace": True}),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"json": SCHEMA}),
        ({"structured_outputs": {"regex": "[ab]+"}}, {"regex": "[ab]+"}),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, {"choice": ["yes", "no"]}),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, {"grammar": 'start: "a"'}),
        ({"regex": "[ab]+"}, {"regex": "[ab]+"}),
        ({"choice": ["yes", "no"]}, {"choice": ["yes", "no"]}),
        ({"grammar": 'start: "a"'}, {"grammar": 'start: "a"'}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("endpoint", ["chat", "complete"])
def test_the_engine_is_asked_for_it(endpoint, fields, asked):
    grammars = WillingGrammars()
    with serving(spell("{}"), grammars=grammars) as server:
        response = getattr(server, endpoint)("hello", **fields)
        assert response.status_code == 200, response.text
        assert "x-octavo-warning" not in response.headers
        assert grammars.asked == ([] if asked is None else [StructuredOutputsParams(**asked)])


def test_an_answer_in_a_shape_is_taken_for_no_tool_call():
    answer = '{"name": "get_time", "parameters": {}}'
    tool = {"type": "function", "function": {"name": "get_time"}}
    with serving(spell(answer), grammars=WillingGrammars(), chat_template="<|python_tag|>") as server:
        [choice] = server.chat(tools=[tool], response_format=JSON_OBJECT, max_tokens=50).json()["choices"]
        assert choice["message"]["content"] == answer


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
         "response_format.json_schema.schema"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": JSON_OBJECT}, "structured_outputs"),
        ({"regex": "a", "choice": ["a"]}, "choice"),
        ({"grammar": "a", "response_format": JSON_OBJECT}, "grammar"),
        ({"choice": []}, "choice"),
        ({"regex": ""}, "regex"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields, param):
    with serving(spell("x"), grammars=WillingGrammars()) as server:
        response = server.chat(**fields)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"choice": ["the cat", "a"]}, "the cat|a"),
        ({"regex": "[ab]{3}"}, "[ab]{3}"),
        ({"response_format": CLOSED_FORMAT}, r'\{\s*"a"\s*:\s*(1|22)\s*\}'),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_the_text_has_the_shape(tiny_server, path, fields, pattern):
    url, _, _ = tiny_server
    prompt = (
        {"prompt": "x"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    )
    answer = httpx.post(url + path, json={**prompt, **fields, "max_tokens": 100, "seed": 3}, timeout=60)
    [choice] = answer.json()["choices"]
    text = choice["text"] if path == "/v1/completions" else choice["message"]["content"]
    assert re.fullmatch(pattern, text), answer.text
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "fields",
    [{"regex": "("}, {"grammar": "no grammar"}, {"structured_outputs": {"json": {"type": "nothing"}}}],
)
def test_shapes_that_cannot_be_compiled_are_the_request_s_fault(tiny_server, fields):
    url, _, _ = tiny_server
    answer = httpx.post(url + "/v1/completions", json={"prompt": "x", **fields}, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
