"""What the tools of a request mean for the prompt, the sampling and the reading of answers."""

import json

import pytest
from engine_fakes import ByteTokenizer
from parsed_answers import join

from octavo.errors import InvalidRequestError
from octavo.server.tools.plan import ToolRequest, plan_answer

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
TIME = {"type": "function", "function": {"name": "get_time"}}
CALL = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "sunny"},
]
HERMES = "within <tool_call></tool_call> marks"
THINKING_HERMES = HERMES + "<think> </think>"


class TemplateTokenizer(ByteTokenizer):
    def __init__(self, template, special_markers=()):
        self.chat_template_source = template
        self._special_markers = special_markers

    def encode(self, text, *, add_special_tokens=True, parse_special=False):
        return [256] if text in self._special_markers else super().encode(text)


def plan(template=HERMES, messages=CONVERSATION, *, is_constrained=False, special_markers=(), **request):
    tool_request = ToolRequest(**{"tools": [WEATHER, TIME], **request})
    tokenizer = TemplateTokenizer(template, special_markers)
    return plan_answer(messages, tool_request, tokenizer, is_constrained=is_constrained)


def read(plan, text, prompt=""):
    parser = plan.new_parser(prompt)
    return parser, [*parser.push(text), *parser.finish()]


def test_a_template_that_knows_tools_gets_them_and_arguments_as_objects():
    planned = plan()
    assert planned.template_tools == [WEATHER, TIME]
    assert planned.messages[:2] == CONVERSATION[:2]
    [call] = planned.messages[2]["tool_calls"]
    assert call == {**CALL, "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    assert planned.reader.name == "hermes"
    assert planned.structured_outputs is None
    assert CALL["function"]["arguments"] == '{"city": "Paris"}'  # the request's own


@pytest.mark.parametrize("arguments", ["not JSON", "[1]", None, 5])
def test_arguments_that_are_no_object_stay(arguments):
    call = {"function": {"name": "get_time", "arguments": arguments}}
    messages = [{"role": "assistant", "tool_calls": [call, "no call"]}]
    assert plan(messages=messages).messages == messages


def test_with_tool_choice_none_nothing_is_offered_or_read():
    planned = plan(choice="none")
    assert planned.template_tools is None
    assert planned.reader is None
    text = '<tool_call>{"name": "get_time"}</tool_call>'
    parser, deltas = read(planned, text)
    assert join(deltas) == (text, "", [])
    assert not parser.is_calling


def test_phi_4_looks_for_tools_in_the_system_message():
    planned = plan("message['tools'] '<|tool|>'", [{"role": "user", "content": "Hi"}])
    assert planned.template_tools is None
    system, user = planned.messages
    assert [function["name"] for function in json.loads(system["tools"])] == ["get_weather", "get_time"]
    assert (system["role"], user) == ("system", {"role": "user", "content": "Hi"})


def test_a_template_without_tools_is_told_of_them_in_words():
    planned = plan("{{ messages }}")
    system, user, assistant, result = planned.messages
    assert system["content"].startswith("Be brief.\n\nYou can call tools.")
    assert '{"name": "get_time"}' in system["content"]
    assert user == CONVERSATION[1]
    assert assistant == {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    }
    assert result == {"role": "user", "content": "<tool_response>\nsunny\n</tool_response>"}
    assert planned.reader.name == "hermes"


def test_a_conversation_without_tools_is_left_alone():
    messages = [{"role": "user", "content": "Hi"}]
    planned = plan("{{ messages }}", messages, tools=())
    assert planned.messages == messages
    assert planned.reader is None
    assert not planned.keeps_special_tokens


def test_parts_of_text_stay_parts():
    parts = [{"type": "text", "text": "Be brief."}]
    planned = plan(
        "{{ messages }}", [{"role": "system", "content": parts}, {"role": "user", "content": "Hi"}]
    )
    assert [part["type"] for part in planned.messages[0]["content"]] == ["text", "text"]


def test_the_developer_is_the_system_unless_the_template_knows_better():
    messages = [{"role": "developer", "content": "Be brief."}]
    assert plan(messages=messages, tools=()).messages == [{"role": "system", "content": "Be brief."}]
    assert plan(HERMES + "developer", messages, tools=()).messages == messages


def test_required_calls_are_forced_by_a_schema():
    planned = plan(choice="required")
    schema = json.loads(planned.structured_outputs.json)
    names = [call["properties"]["name"]["const"] for call in schema["items"]["anyOf"]]
    assert names == ["get_weather", "get_time"]
    assert schema["minItems"] == 1
    assert schema["$defs"]["parameters_0"] == {**SCHEMA, "additionalProperties": False}
    assert schema["$defs"]["parameters_1"]["properties"] == {}
    parser, deltas = read(
        planned, '[{"name":"get_time","arguments":{}},{"name":"get_weather","arguments":{"city":"P"}}]'
    )
    assert [call[0] for call in join_any_id(deltas)] == ["get_time", "get_weather"]
    assert parser.is_calling


def join_any_id(deltas):
    return [(delta.name, delta.index) for delta in deltas if getattr(delta, "name", None)]


def test_a_named_call_is_one_call_of_that_tool():
    schema = json.loads(plan(named="get_weather").structured_outputs.json)
    assert schema["items"]["properties"]["name"] == {"const": "get_weather"}
    assert schema["maxItems"] == 1
    assert json.loads(plan(choice="required", parallel=False).structured_outputs.json)["maxItems"] == 1


def test_references_in_a_schema_follow_it_to_where_it_is_moved():
    parameters = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": [{"$ref": "#"}]},
        "$defs": {"A": {"type": "integer"}},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    schema = json.loads(plan(tools=[TIME, tool], choice="required").structured_outputs.json)
    moved = schema["$defs"]["parameters_1"]
    assert moved["type"] == "object"
    assert moved["properties"] == {
        "a": {"$ref": "#/$defs/parameters_1/$defs/A"},
        "b": [{"$ref": "#/$defs/parameters_1"}],
    }


@pytest.mark.parametrize(
    ("request_options", "message"),
    [
        ({"tools": (), "choice": "required"}, "there are no tools"),
        ({"tools": (), "named": "f"}, "there are no tools"),
        ({"named": "f"}, "names 'f', which is not among the tools: 'get_weather, get_time'"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(request_options, message):
    with pytest.raises(InvalidRequestError, match=message) as caught:
        plan(**request_options)
    assert caught.value.param == "tool_choice"


def test_without_parallel_calls_only_the_first_counts():
    call = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    _, deltas = read(plan(parallel=False), call + call)
    assert join_any_id(deltas) == [("get_time", 0)]


def test_special_tokens_stay_in_the_text_where_they_mark_calls():
    assert plan(special_markers=("<tool_call>",)).keeps_special_tokens
    assert not plan().keeps_special_tokens
    assert not plan(special_markers=("<tool_call>",), choice="required").keeps_special_tokens


def test_thoughts_are_read_only_where_there_can_be_any():
    assert join(read(plan(THINKING_HERMES), "Hm.</think>Yes.", "assistant\n<think>\n")[1])[:2] == (
        "Yes.",
        "Hm.",
    )
    assert join(read(plan(THINKING_HERMES), "Yes.", "assistant\n")[1])[:2] == ("Yes.", "")
    assert not plan(THINKING_HERMES, choice="required").has_reasoning
    assert not plan(THINKING_HERMES, is_constrained=True).has_reasoning
    assert not plan(HERMES).has_reasoning


def test_under_a_grammar_of_the_clients_nothing_is_taken_for_a_call():
    assert plan(is_constrained=True).reader is None


def test_the_ids_are_those_that_the_models_template_takes_back():
    assert len(plan("[TOOL_CALLS]", choice="required").new_call_id()) == 9
