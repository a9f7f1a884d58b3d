from pathlib import Path

import pytest

from octavo.errors import ModelLoadError
from octavo.models.loaded import load_model
from octavo.models.quoting import one_line, quote
from octavo.models.spec import model_name


def test_a_quote_is_short_and_has_no_control_characters():
    assert quote("gpt2") == "'gpt2'"
    assert quote("\x1b[2J\n") == r"'\x1b[2J\n'"
    assert quote(7) == "7"
    assert len(quote("x" * 10_000_000)) == 60
    assert quote("x" * 10_000_000).endswith("...")


def test_a_line_is_one_line():
    assert one_line("a\n\tb\x1b[31mc\u202e") == "a b [31mc"
    assert len(one_line("x" * 10_000_000)) == 300


def test_model_names_hold_nothing_that_a_terminal_obeys():
    assert model_name("evil\x1b]0;pwned\x07\nname", Path("m.gguf")) == "evil ]0;pwned name"
    assert model_name("\x1b\x07", Path("the-file.gguf")) == "the-file"
    assert model_name(None, Path("the-file.gguf")) == "the-file"
    assert len(model_name("x" * 1000, Path("m.gguf"))) == 80


@pytest.mark.parametrize(
    "key",
    ["tokenizer.ggml.pre", "tokenizer.ggml.model", "general.architecture", "llama.rope.scaling.type"],
)
def test_long_text_in_a_file_makes_no_long_error(tiny_llama, key):
    path = tiny_llama(metadata={key: "x" * 100_000})
    with pytest.raises(ModelLoadError) as caught:
        load_model(path)
    assert len(str(caught.value)) < len(str(path)) + 400


def test_a_name_in_the_file_is_cleaned(tiny_llama):
    assert load_model(tiny_llama(metadata={"general.name": "a\x1bb"})).spec.name == "a b"
