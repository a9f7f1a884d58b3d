import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.tokenizer_json import build_json_tokenizer

VOCAB_SIZE = 280
"""Six more than the tiny tokenizer has tokens."""
CONTROL = "<|im_end|>"


def change(folder: Path, name: str = "tokenizer.json", **changes: object) -> None:
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **changes}))


def build(folder: Path, **options: object):
    return build_json_tokenizer(folder, **{"vocab_size": VOCAB_SIZE, **options})


def error_of(folder: Path, **options: object) -> str:
    with pytest.raises(ModelLoadError) as caught:
        build(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def added(folder: Path) -> list[dict]:
    return json.loads((folder / "tokenizer.json").read_text())["added_tokens"]


def sentencepiece_folder(folder: Path) -> Path:
    """A SentencePiece-like BPE with bytes to fall back on, a space in front, and BOS."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a", "b", "ab"]
    model = BPE(
        vocab={piece: number for number, piece in enumerate(pieces)},
        merges=[("▁", "a"), ("a", "b")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([AddedToken(piece, normalized=True) for piece in pieces[:3]])
    document = json.loads(tokenizer.to_str())
    prepend = {"type": "Prepend", "prepend": "▁"}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    document["normalizer"] = {"type": "Sequence", "normalizers": [prepend, spaces]}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    document["decoder"] = {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, strip]}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    change(folder, "tokenizer_config.json", bos_token={"content": "<s>"}, eos_token="</s>")
    return folder


def test_ids_are_those_of_the_library_and_bytes_come_back(tiny_folder):
    folder = tiny_folder()
    tokenizer, oracle = build(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in (
        "the cats",
        "na\u00efve \U0001f642\U0001f469\u200d\U0001f4bb",
        " \n\n\t x",
        "123 45",
        "\x00\u202e",
    ):
        ids = tokenizer.encode(text)
        assert ids == oracle.encode(text).ids
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("make", ["byte_level", "sentencepiece"])
def test_control_tokens_in_a_text_are_text_unless_asked_for(tmp_path, tiny_folder, make):
    folder = tiny_folder() if make == "byte_level" else sentencepiece_folder(tmp_path / "spm")
    name = CONTROL if make == "byte_level" else "</s>"
    tokenizer = build(folder)
    control = tokenizer.vocabulary.tokens.index(name)
    text = f"a {name} b"
    plain = tokenizer.encode(text, add_special_tokens=False)
    assert control not in plain
    assert tokenizer.decode(plain) == text
    assert control in tokenizer.encode(text, parse_special=True)


def test_a_marked_control_token_stays_text_even_if_the_file_wants_it_normalised(tmp_path):
    folder = sentencepiece_folder(tmp_path / "spm")
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}</s>")
    tokenizer = build(folder)
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "a</s>b"}])
    ids = tokenizer.encode(rendered, add_special_tokens=False, parse_special=True)
    assert ids.count(2) == 1
    assert tokenizer.decode(ids) == "a</s>b</s>"


def test_bos_comes_from_the_post_processor_unless_the_configuration_says_otherwise(tmp_path):
    folder = sentencepiece_folder(tmp_path / "spm")
    assert build(folder).encode("a")[0] == 1
    assert 1 not in build(folder).encode("a", add_special_tokens=False)
    change(folder, "tokenizer_config.json", add_bos_token=False, add_eos_token=True)
    assert build(folder).encode("a") == [*build(folder).encode("a", add_special_tokens=False), 2]


def test_a_post_processor_adds_only_tokens_of_the_model(tmp_path):
    folder = sentencepiece_folder(tmp_path / "spm")
    special = {"<s>": {"id": "<s>", "ids": [1 << 20], "tokens": ["<s>"]}}
    document = json.loads((folder / "tokenizer.json").read_text())
    change(folder, "tokenizer.json", post_processor={**document["post_processor"], "special_tokens": special})
    with pytest.raises(ModelLoadError, match="adds a token that the model does not have"):
        build(folder)


def test_sentencepiece_bytes_and_spaces_come_back(tmp_path):
    tokenizer = build(sentencepiece_folder(tmp_path / "spm"))
    for text in ("a", "ab  b", " a", "é\U0001f642"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.token_bytes(3 + 0xC3) == b"\xc3"


def test_ids_that_only_the_model_has_are_padding(tiny_folder):
    tokenizer = build(tiny_folder())
    assert tokenizer.vocab_size == VOCAB_SIZE
    assert tokenizer.token_bytes(279) == b"[PAD279]"
    with pytest.raises(InvalidRequestError, match="token id 280 does not exist"):
        tokenizer.token_bytes(280)


def test_added_tokens_that_the_model_lacks_are_left_out(tiny_folder):
    folder = tiny_folder()
    image = {"id": 280, "content": "<image>", "special": True, "normalized": False}
    change(
        folder,
        added_tokens=[
            *added(folder),
            *({**image, "id": 274 + n, "content": f"<{n}>"} for n in range(6)),
            image,
        ],
    )
    assert max(build(folder).encode("<image><5>", parse_special=True)) == 279


def test_added_tokens_that_are_no_control_tokens_are_found_in_every_text(tiny_folder):
    folder = tiny_folder()
    change(folder, added_tokens=[*added(folder), {"id": 274, "content": "<think>", "special": False}])
    tokenizer = build(folder)
    assert tokenizer.encode("<think>") == [274]
    assert not tokenizer.is_special(274)
    assert tokenizer.token_bytes(274) == b"<think>"


def test_every_token_that_ends_a_text_is_known(tiny_folder):
    folder = tiny_folder()
    change(folder, "tokenizer_config.json", eos_token="<|endoftext|>")
    assert build(folder, end_ids=[5, 999_999]).eos_token_ids == {0, 2, 5}


def test_encoding_is_never_random(tiny_folder):
    folder = tiny_folder()
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    expected = build(folder).encode("the cat the cat")
    change(folder, model={**model, "dropout": 1.0})
    assert build(folder).encode("the cat the cat") == expected


class TestChatTemplates:
    MESSAGES = ({"role": "user", "content": "x"},)

    def render(self, folder: Path, **options: object) -> str:
        return build(folder).apply_chat_template(self.MESSAGES, **options)

    def test_a_file_comes_before_the_configuration(self, tiny_folder):
        folder = tiny_folder()
        change(folder, "tokenizer_config.json", chat_template="configured")
        (folder / "chat_template.jinja").write_text("from a file")
        assert self.render(folder) == "from a file"
        (folder / "chat_template.jinja").unlink()
        assert self.render(folder) == "configured"

    def test_one_of_several_is_chosen_by_name_or_for_tools(self, tiny_folder):
        folder = tiny_folder()
        (folder / "chat_template.jinja").unlink()
        named = [{"name": name, "template": f"this is {name}"} for name in ("default", "tool_use", "rag")]
        change(folder, "tokenizer_config.json", chat_template=named)
        assert self.render(folder) == "this is default"
        assert self.render(folder, tools=[{"name": "f"}]) == "this is tool_use"
        assert self.render(folder, chat_template="rag") == "this is rag"
        assert self.render(folder, chat_template="inline {{ 1 }}") == "inline 1"

    def test_templates_in_a_folder_of_their_own_have_the_names_of_the_files(self, tiny_folder):
        folder = tiny_folder()
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
        assert self.render(folder, tools=[{"name": "f"}]) == "with tools"

    def test_several_without_a_default_are_listed(self, tiny_folder):
        folder = tiny_folder()
        (folder / "chat_template.jinja").unlink()
        change(folder, "tokenizer_config.json", chat_template=[{"name": "rag", "template": "x"}])
        with pytest.raises(InvalidRequestError, match=r"'rag' and none is the default.*--chat-template FILE"):
            self.render(folder)

    def test_none_is_an_error_with_the_flag(self, tiny_folder):
        folder = tiny_folder()
        (folder / "chat_template.jinja").unlink()
        with pytest.raises(InvalidRequestError, match=r"no chat template.*--chat-template FILE"):
            self.render(folder)

    @pytest.mark.parametrize("value", [7, [1], [{"name": "x"}], {"name": 1, "template": "x"}])
    def test_malformed_ones_are_one_line(self, tiny_folder, value):
        folder = tiny_folder()
        change(folder, "tokenizer_config.json", chat_template=value)
        assert "chat_template must be a text, or a list" in error_of(folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": None}, "has no model"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "kind 'WordPiece' is not supported"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, "must be distinct integers"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "must be distinct integers"),
        ({"model": {"type": "BPE", "vocab": {"a": 1 << 40}, "merges": []}}, "must be distinct integers"),
        ({"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}}, "must be distinct integers"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "has no vocabulary"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}, "not a tokenizer"),
        ({"model": {"type": "BPE", "vocab": {"a": 300}, "merges": []}}, "but the model has 280 tokens"),
        ({"added_tokens": 7}, "added_tokens must be a list of tokens"),
        ({"added_tokens": [{"id": 1}]}, "added_tokens must be a list of tokens"),
        ({"added_tokens": [{"id": 1, "content": "<x>"}]}, "has the id 1, but 274 is next"),
        ({"added_tokens": [{"id": 1, "content": "<x>"}] * 2}, "two added tokens have the id 1"),
        ({"decoder": None}, "the decoder 'none' is not supported"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "decoder 'WordPiece'"),
        ({"normalizer": {"type": "Nothing"}}, "not a tokenizer"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40}},
            "makes text more than 64 times longer",
        ),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "a*"}, "content": "a" * 65}},
         "more than 64"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_one_line(tiny_folder, changes, problem):
    folder = tiny_folder()
    change(folder, **changes)
    assert problem in error_of(folder)


TEXT = st.text(max_size=3)
JSON = st.none() | st.booleans() | st.integers(-2, 400) | TEXT | st.lists(TEXT, max_size=3)
TOKENS = st.lists(TEXT, max_size=8, unique=True).map(lambda found: {text: i for i, text in enumerate(found)})
ADDED = st.fixed_dictionaries({"id": st.integers(0, 9) | JSON, "content": TEXT | JSON})


@settings(deadline=None, max_examples=150)
@given(
    vocab=TOKENS | st.dictionaries(TEXT, JSON, max_size=6),
    merges=st.lists(TEXT | st.lists(TEXT, max_size=3), max_size=4) | JSON,
    added_tokens=st.lists(ADDED, max_size=3),
)
def test_any_file_is_read_or_refused_in_one_line(tmp_path_factory, vocab, merges, added_tokens):
    folder = tmp_path_factory.getbasetemp()
    model = {"type": "BPE", "vocab": vocab, "merges": merges}
    document = {"model": model, "added_tokens": added_tokens, "decoder": {"type": "ByteFallback"}}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    try:
        build(folder).encode("ab c")
    except ModelLoadError as error:
        assert "\n" not in str(error)  # noqa: PT017
