"""Every family reads the answers it documents, whole and character by character."""

import pytest
from parsed_answers import parse
from tool_answers import ANSWERS

from octavo.server.tools.families import FAMILIES, family_of

CASES = [
    pytest.param(family, answer, id=f"{family}-{answer.title}")
    for family, answers in ANSWERS.items()
    for answer in answers
]


@pytest.mark.parametrize(("family", "answer"), CASES)
def test_calls_and_content(family, answer):
    parsed = parse(family, [answer.text])
    assert parsed.decoded_calls == answer.calls
    assert parsed.content == answer.content


@pytest.mark.parametrize(("family", "answer"), CASES)
def test_character_by_character(family, answer):
    assert parse(family, answer.text) == parse(family, [answer.text])


def test_every_family_has_a_table():
    assert set(ANSWERS) == {family.name for family in FAMILIES}


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", None),
        ('... within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>', "hermes"),
        ("<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>", "qwen-coder"),
        ("<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>", "glm"),
        ('[AVAILABLE_TOOLS] ... {{ "[TOOL_CALLS] [" }}', "mistral"),
        ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'", "deepseek"),
        ('{{- "<|python_tag|>" + tool_call.name }}', "llama"),
        ("'Given the following functions, please respond with a JSON for a function call'", "llama"),
        ("{{ message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' }}", "phi4"),
        ("only write '<|tool_call|>' followed by a JSON list of tools", "granite"),
    ],
)
def test_the_template_names_the_family(template, name):
    family = family_of(template)
    assert (family.name if family else None) == name


def test_arguments_are_passed_on_while_they_are_written():
    from octavo.server.tools.answer_parser import AnswerParser
    from octavo.server.tools.call_writer import CallWriter
    from octavo.server.tools.hermes import parse_hermes

    parser = AnswerParser(parse_hermes, CallWriter({}))
    [begun] = parser.push('<tool_call>\n{"name": "get_weather", "arguments": {')[:1]
    assert (begun.name, begun.index) == ("get_weather", 0)
    assert begun.call_id.startswith("call_")
    assert [delta.arguments for delta in parser.push('"city": "Par')] == ['"city": "Par']
    assert [delta.arguments for delta in parser.push('is"}}')] == ['is"}']
    assert parser.finish() == []
    assert parser.is_calling


@pytest.mark.parametrize(
    ("text", "arguments", "content"),
    [
        ('<tool_call>{"name": "run", "arguments": {"code": \'x\'}}</tool_call>!', "{\"code\": 'x'}}", "!"),
        ('<tool_call>{"name": "run", "arguments": {"code": "x', '{"code": "x', ""),
        ('<tool_call>{"name": "run", "arguments": {"code": }}</tool_call>', '{"code": }', ""),
        ('<tool_call>{"name": "run", "arguments": {}, \'id\': 1}</tool_call>!', "{}", "!"),
    ],
)
def test_a_call_that_has_begun_is_not_taken_back(text, arguments, content):
    """What the model wrote is for the client to judge: it was told of the call already."""
    parsed = parse("hermes", text)
    assert parsed.calls == [("run", arguments)]
    assert parsed.content == content


def test_mistral_ids_have_nine_letters_and_digits():
    [family] = [family for family in FAMILIES if family.name == "mistral"]
    call_id = family.new_call_id()
    assert len(call_id) == 9
    assert call_id.isalnum()
