"""Shapes of texts that clients ask for, over a socket: what the engine is asked for in turn."""

import json

import pytest
from async_harness import spell
from engine_fakes import WillingGrammars
from server_harness import serving

from octavo.structured_outputs import StructuredOutputsParams

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
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
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields, param):
    with serving(spell("x"), grammars=WillingGrammars()) as server:
        response = server.chat(**fields)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
