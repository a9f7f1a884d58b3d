"""The ways to write a prompt."""

import pytest
from engine_fakes import ByteTokenizer

from octavo.engine.prompt import encode_prompt
from octavo.errors import InvalidRequestError

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
        ({"prompt": "x", "multi_modal_data": 1}, "got the keys multi_modal_data"),
    ],
)
def test_anything_else_is_refused_and_says_what_would_do(prompt, got):
    with pytest.raises(InvalidRequestError, match=f"a prompt is a string, .*{got}"):
        encode_prompt(prompt, ByteTokenizer())
