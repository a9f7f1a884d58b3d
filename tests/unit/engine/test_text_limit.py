"""Texts that cannot fit are refused before anything is done with them."""

import pytest
from engine_fakes import ByteTokenizer

from octavo.engine.prompt import encode_chat
from octavo.engine.text_limit import TextLimit
from octavo.errors import ContextLengthError

LIMIT = TextLimit(max_model_len=10, max_token_length=3)


def test_a_text_is_as_long_as_the_context_is_in_the_longest_tokens():
    LIMIT.check("x" * 30, param="prompt")
    with pytest.raises(
        ContextLengthError, match=r"31 characters, .* context length is 10 tokens, .* most 30"
    ) as error:
        LIMIT.check("x" * 31, param="prompt")
    assert error.value.param == "prompt"


def test_a_conversation_is_measured_as_it_is_written_out():
    class Untouched(ByteTokenizer):
        def encode(self, text, **options):
            raise AssertionError("it was tokenized")

    messages = [{"role": "user", "content": "x" * 20}]
    with pytest.raises(ContextLengthError):
        encode_chat(messages, Untouched(), limit=LIMIT)
    assert encode_chat(messages, ByteTokenizer()).text == f"user: {'x' * 20}\nassistant: "
