"""The ways to write a prompt."""

import pytest
from engine_fakes import ByteTokenizer

from octavo.engine.prompt import (
    encode_chat,
    encode_prompt,
    list_conversations,
    list_prompts,
    template_variables,
)
from octavo.errors import InvalidRequestError, UnsupportedFeatureError

IDS = list(b"Hi")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hi", (IDS, "Hi", None)),
        ({"prompt": "Hi"}, (IDS, "Hi", None)),
        ({"prompt": "Hi", "cache_salt": "s"}, (IDS, "Hi", "s")),
        ({"prompt_token_ids": [1, 2]}, ([1, 2], None, None)),
        ({"prompt_token_ids": [1, 2], "prompt": "told", "cache_salt": "s"}, ([1, 2], "told", "s")),
        ("", ([], "", None)),
    ],
)
def test_forms(prompt, expected):
    assert encode_prompt(prompt, ByteTokenizer()) == expected


@pytest.mark.parametrize(
    ("prompt", "got"),
    [
        (7, "got a int"),
        (None, "got a NoneType"),
        ([1, 2], "got a list"),
        ({}, "got neither"),
        ({"prompt": 7}, "got a prompt that is a int"),
        ({"prompt": "x", "promt": 1}, "got the keys promt"),
    ],
)
def test_anything_else_is_refused_and_says_what_would_do(prompt, got):
    with pytest.raises(InvalidRequestError, match=f"a prompt is a string, .*{got}"):
        encode_prompt(prompt, ByteTokenizer())


@pytest.mark.parametrize("key", ["multi_modal_data", "prompt_embeds"])
def test_what_only_other_engines_take_is_told_as_such(key):
    with pytest.raises(
        UnsupportedFeatureError, match=f"{key} is not supported: a prompt is text or token ids"
    ):
        encode_prompt({"prompt": "x", key: 1}, ByteTokenizer())


def turns(*contents):
    return [
        {"role": role, "content": content}
        for role, content in zip(("user", "assistant"), contents, strict=False)
    ]


def test_a_conversation_ends_with_the_opening_of_an_answer():
    encoded = encode_chat(turns("Hi"), ByteTokenizer())
    assert encoded.text == "user: Hi\nassistant: "
    assert bytes(encoded.token_ids).decode() == encoded.text
    assert encode_chat(turns("Hi"), ByteTokenizer(), add_generation_prompt=False).text == "user: Hi\n"


@pytest.mark.parametrize("beginning", ["The answer is ", "\n", "", "user"])
def test_the_last_message_can_be_continued(beginning):
    encoded = encode_chat(
        turns("Hi", beginning), ByteTokenizer(), add_generation_prompt=False, continue_final_message=True
    )
    assert encoded.text == f"user: Hi\nassistant: {beginning}"


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        (turns("Hi"), {}, "exclude each other"),
        (turns(["parts"]), {"add_generation_prompt": False}, "needs a last message whose content is text"),
    ],
)
def test_what_cannot_be_continued_is_refused(messages, options, message):
    with pytest.raises(InvalidRequestError, match=message):
        encode_chat(messages, ByteTokenizer(), continue_final_message=True, **options)


def test_a_template_that_hides_the_last_message_cannot_continue_it():
    class Forgetful(ByteTokenizer):
        def apply_chat_template(self, messages, **options):
            return "nothing was said"

    with pytest.raises(InvalidRequestError, match="leaves out the end of the last message"):
        encode_chat(turns("Hi"), Forgetful(), add_generation_prompt=False, continue_final_message=True)


def test_a_message_is_text():
    picture = [{"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image_url"}]}]
    with pytest.raises(UnsupportedFeatureError, match="a part of type 'image_url'; only text is supported"):
        encode_chat(picture, ByteTokenizer())


@pytest.mark.parametrize("message", [None, 5, "Hi", ["user", "Hi"]])
def test_a_message_is_a_mapping(message):
    with pytest.raises(InvalidRequestError, match="a message is a mapping"):
        encode_chat([message], ByteTokenizer())


@pytest.mark.parametrize("prompts", [None, 5, b"bytes", 1.5])
def test_what_is_no_list_of_prompts_is_refused(prompts):
    with pytest.raises(InvalidRequestError, match="a prompt is a string"):
        list_prompts(prompts)


def test_prompts_may_come_from_any_iterable():
    assert list_prompts(iter(["a", "b"])) == list_prompts(["a", "b"]) == ["a", "b"]
    assert list_prompts("ab") == ["ab"]


@pytest.mark.parametrize("messages", [None, 5, "Hi", {"role": "user", "content": "Hi"}, ["Hi"], [None]])
def test_what_is_no_conversation_is_refused(messages):
    with pytest.raises(InvalidRequestError, match="a conversation is a list of messages") as refusal:
        list_conversations(messages)
    assert refusal.value.param == "messages"


def test_conversations_may_come_from_any_iterable():
    one, two = turns("Hi"), turns("Ho", "He")
    assert list_conversations(iter(one)) == list_conversations(one) == [one]
    assert list_conversations(iter([iter(one), iter(two)])) == [one, two]


@pytest.mark.parametrize("name", ["self", "messages", "add_generation_prompt", "chat_template", "tokenizer"])
def test_a_variable_cannot_have_the_name_of_an_argument(name):
    with pytest.raises(InvalidRequestError, match=f"must not hold {name}") as refusal:
        template_variables({name: 1}, None)
    assert refusal.value.param == "chat_template_kwargs"


@pytest.mark.parametrize("variables", [5, [], {5: 1}, "names"])
def test_variables_are_names_with_values(variables):
    with pytest.raises(InvalidRequestError, match="must map names to values"):
        template_variables(variables, None)


def test_tools_are_a_variable_of_their_own():
    assert template_variables({"x": 1}, [{}]) == {"x": 1, "tools": [{}]}
    assert template_variables(None, None) == {}
