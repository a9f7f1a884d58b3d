import datetime
import json
from pathlib import Path

import pytest

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.chat_template import ChatTemplate
from octavo.models.loaded import load_model

GOLDENS = Path(__file__).parents[2] / "goldens"
HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, messages=HELLO, **options) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", origin="m.gguf").render(
        messages, **options
    )


@pytest.mark.model
def test_rendered_conversations_equal_the_goldens(default_model_path):
    model = load_model(default_model_path)
    for golden in json.loads((GOLDENS / "smollm2.json").read_text()):
        if golden["kind"] == "chat":
            assert model.tokenizer.apply_chat_template(golden["prompt"]) == golden["text"]


def test_the_variables_of_a_template():
    assert render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}") == "<s>Hello</s>"
    assert render("{{ add_generation_prompt }}") == "True"
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"
    assert render("{{ tools is none }}") == "True"
    assert render("{{ thinking }}", variables={"thinking": "on"}) == "on"


def test_variables_cannot_replace_the_conversation():
    assert render("{{ messages[0].content }}", variables={"messages": []}) == "Hello"


def test_blocks_leave_no_white_space():
    assert (
        render("{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}")
        == "user\n"
    )


def test_loop_controls_work():
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"


def test_what_is_marked_as_generated_is_written_like_everything_else():
    source = (
        "{% for m in messages %}{%- generation -%} {{ m.content }}{% set x = 1 %}{%- endgeneration -%}"
        "{{ x is defined }}{% endfor %}"
    )
    assert render(source) == "HelloFalse"
    assert render("{% for i in [1, 2] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}") == ""
    with pytest.raises(ModelLoadError, match="the chat template is not valid"):
        render("{% generation %}")


def test_tojson_writes_plain_json():
    source = "{{ {'b': '<é & 中>', 'a': [1]} | tojson }}"
    assert render(source) == '{"b": "<é & 中>", "a": [1]}'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'


def test_strftime_now_is_today():
    assert render("{{ strftime_now('%Y') }}") == str(datetime.datetime.now().astimezone().year)
    assert render("{{ strftime_now('<%Z%z>') }}") == "<>"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ raise_exception('roles must\\n alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.missing.deeper }}", "no attribute 'missing'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ ''.__class__.__mro__ }}", "__class__"),
        ("{{ range(10 ** 9) }}", "too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% include '/etc/passwd' %}", "no loader"),
    ],
)
def test_a_template_that_fails_is_the_requests_error_in_one_line(source, expected):
    with pytest.raises(InvalidRequestError, match=expected) as caught:
        render(source)
    assert caught.value.param == "messages"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["{% for %}", "{{ unclosed", "{% nonsense %}", "{{ 1 | no_such_filter }}"])
def test_a_template_that_does_not_compile_is_a_load_error(source):
    with pytest.raises(ModelLoadError, match=r"^m\.gguf: the chat template is not valid: .") as caught:
        render(source)
    assert "\n" not in str(caught.value)


def test_a_file_replaces_the_models_template(tiny_llama, tmp_path):
    replacement = tmp_path / "chat.jinja"
    replacement.write_text("{{ messages[0].content }}!")
    assert (
        load_model(tiny_llama(), chat_template=replacement).tokenizer.apply_chat_template(HELLO) == "Hello!"
    )


def test_a_replacement_that_cannot_be_read_is_a_load_error(tiny_llama, tmp_path):
    with pytest.raises(
        ModelLoadError, match=r"missing.jinja: the chat template cannot be read: No such file"
    ):
        load_model(tiny_llama(), chat_template=tmp_path / "missing.jinja")
    binary = tmp_path / "binary.jinja"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ModelLoadError, match="not UTF-8"):
        load_model(tiny_llama(), chat_template=binary)


def test_without_a_template_the_error_names_the_flag(tiny_llama):
    model = load_model(tiny_llama(metadata={"tokenizer.chat_template": None}))
    assert model.chat_template is None
    with pytest.raises(InvalidRequestError, match="--chat-template"):
        model.tokenizer.apply_chat_template(HELLO)
