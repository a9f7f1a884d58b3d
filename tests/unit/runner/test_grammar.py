"""`LLGuidanceCompiler`: every kind of constraint as masks over a small vocabulary, and what is refused."""

import gc
import re
import weakref
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from engine_fakes import EOS, VOCAB_SIZE, ByteTokenizer

from octavo.errors import InvalidRequestError, QueueFullError, UnsupportedFeatureError
from octavo.kernels.sampling import allowed_words
from octavo.runner.grammar import MAX_COMPILED, MAX_GBNF_LENGTH, MAX_WHITESPACE, LLGuidanceCompiler
from octavo.structured_outputs import StructuredOutputsParams

PATIENCE_S = 60


@pytest.fixture
def compiler():
    made = LLGuidanceCompiler(ByteTokenizer())
    yield made
    made.close()


def allowed(matcher):
    """The ids of the tokens that may follow."""
    words = np.zeros(allowed_words(VOCAB_SIZE), np.uint32)
    matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def after(compiler, text, **constraint):
    return allowed(compiler.matcher(StructuredOutputsParams(**constraint), list(text.encode())))


def accepts(compiler, text, **constraint):
    """Whether the whole text fits: token by token, and then nothing but the end may be missing."""
    matcher = compiler.matcher(StructuredOutputsParams(**constraint), ())
    for token_id in text.encode():
        if token_id not in allowed(matcher):
            return False
        matcher.consume_token(token_id)
    return EOS in allowed(matcher)


SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"enum": ["x", "y"]}},
    "required": ["b", "a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("constraint", "fits", "does_not"),
    [
        ({"json": SCHEMA}, ['{"b": 12, "a": "y"}', '{"b":1,"a":"x"}'], ['{"a": "x", "b": 1}', "[]"]),
        ({"json": SCHEMA, "disable_any_whitespace": True}, ['{"b":1,"a":"x"}'], ['{"b": 1,"a":"x"}']),
        ({"json_object": True}, ["{}", '{"a": [1, {"b": null}]}'], ["[]", '{"a"}', "x"]),
        ({"regex": r"[a-c]+\d{2}"}, ["abc12", "a00"], ["12", "a1", "a123"]),
        ({"choice": ["yes", "no", "not now"]}, ["yes", "no", "not now"], ["ye", "not", "maybe"]),
        ({"grammar": 'start: "a" start | "b"'}, ["b", "aab"], ["a", "bb"]),
        ({"grammar": 'root ::= "a"* [0-9]'}, ["7", "aa7"], ["a", "77"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_text_fits_or_it_does_not(compiler, constraint, fits, does_not):
    assert [text for text in fits if not accepts(compiler, text, **constraint)] == []
    assert [text for text in does_not if accepts(compiler, text, **constraint)] == []


@pytest.mark.parametrize(
    "text", ['"', "\\", "\n\t\r", "\x7f\x01", "/a|b/ %import", "é日本😀", "{}", "a" * 300]
)
def test_any_text_can_be_a_choice(compiler, text):
    assert accepts(compiler, text, choice=[text, "other"])


def test_white_space_in_json_comes_to_an_end(compiler):
    assert ord(" ") in after(compiler, "{" + " " * (MAX_WHITESPACE - 1), json_object=True)
    assert ord(" ") not in after(compiler, "{" + " " * MAX_WHITESPACE, json_object=True)


def test_only_the_end_of_the_text_follows_a_whole_one(compiler):
    assert after(compiler, "yes", choice=["yes"]) == {EOS}


def test_tokens_of_several_bytes_are_allowed_where_they_fit(compiler):
    ids = after(compiler, "", regex="S[A-Z]*!?")
    assert {ord("S"), 256 + 4, 256 + 6} <= ids  # "STOP!", "ST"
    assert 256 + 3 not in ids  # "stop"


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "(a"},
        {"regex": r"a(?=b)"},
        {"json": {"type": "nothing"}},
        {"json": {"not": {"type": "string"}}},
        {"json": {"$ref": "http://example.invalid/schema"}},
        {"json": '{"items":' * 200 + "{}" + "}" * 200},
        {"grammar": "start: nothing"},
        {"grammar": "junk"},
        {"grammar": "root ::= " + "(" * 3000 + '"a"' + ")" * 3000},
        {"grammar": "root ::= " + '"a" ' * MAX_GBNF_LENGTH},
        {"grammar": "start: " + '"a"? ' * 20_000},
    ],
    ids=lambda constraint: next(iter(constraint)),
)
def test_a_constraint_that_cannot_be_used_is_the_fault_of_its_request(compiler, constraint):
    compiled = compiler.compile(StructuredOutputsParams(**constraint))
    error = compiled.exception(PATIENCE_S)
    assert isinstance(error, InvalidRequestError)
    assert error.param == "structured_outputs"
    kind = next(iter(constraint))
    assert re.match(rf"structured_outputs: {kind} cannot be used: [^\n]+$", str(error))
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    "constraint",
    [{"regex": "((a{1,1000}){1,1000}){1,1000}"}, {"grammar": "start: start"}, {"json": {"$ref": "#"}}],
    ids=["too much work", "no text at all", "no text either"],
)
def test_a_constraint_that_cannot_be_followed_says_so_in_the_end(compiler, constraint):
    matcher = compiler.matcher(StructuredOutputsParams(**constraint), ())
    for _ in range(100):
        ids = allowed(matcher)
        if matcher.is_error():
            break
        matcher.consume_token(min(ids))
    assert matcher.get_error()


def test_equal_constraints_are_compiled_once_and_followed_apart(compiler):
    params = StructuredOutputsParams(choice=["ab", "cd"])
    assert compiler.compile(params) is compiler.compile(StructuredOutputsParams(choice=("ab", "cd")))
    first, second = compiler.matcher(params, ()), compiler.matcher(params, b"c")
    assert allowed(first) == {ord("a"), ord("c")}
    assert allowed(second) == {ord("d")}
    assert first.consume_token(ord("a"))
    assert allowed(compiler.matcher(params, ())) == {ord("a"), ord("c")}


def test_the_oldest_constraint_leaves_and_is_compiled_again_when_needed(compiler):
    first = StructuredOutputsParams(regex="a0")
    compiled = weakref.ref(compiler.compile(first))
    compiled().result(PATIENCE_S)
    for i in range(1, MAX_COMPILED + 1):
        compiler.compile(StructuredOutputsParams(regex=f"a{i}")).result(PATIENCE_S)
    gc.collect()
    assert compiled() is None
    assert allowed(compiler.matcher(first, ())) == {ord("a")}


def test_a_constraint_that_a_request_holds_is_there_however_many_come_after_it(compiler, monkeypatch):
    """A step must neither wait for it nor fail because others are being compiled."""
    held = StructuredOutputsParams(regex="a0")
    compiled = compiler.compile(held)
    compiled.result(PATIENCE_S)
    for i in range(1, MAX_COMPILED + 1):
        compiler.compile(StructuredOutputsParams(regex=f"a{i}")).result(PATIENCE_S)
    monkeypatch.setattr(compiler, "_executor", SimpleNamespace(submit=lambda *_: Future()))
    for i in range(MAX_COMPILED):
        compiler.compile(StructuredOutputsParams(regex=f"b{i}"))
    with pytest.raises(QueueFullError):
        compiler.compile(StructuredOutputsParams(regex="c"))
    assert compiler.compile(held) is compiled
    assert allowed(compiler.matcher(held, ())) == {ord("a")}


def test_no_more_constraints_are_taken_than_can_be_kept(compiler, monkeypatch):
    futures = []
    submit = lambda *_: futures.append(Future()) or futures[-1]  # noqa: E731
    monkeypatch.setattr(compiler, "_executor", SimpleNamespace(submit=submit))
    for i in range(MAX_COMPILED):
        compiler.compile(StructuredOutputsParams(regex=f"a{i}"))
    with pytest.raises(QueueFullError, match=f"{MAX_COMPILED} constraints"):
        compiler.compile(StructuredOutputsParams(regex="b"))
    compiler.compile(StructuredOutputsParams(regex="a0"))
    futures[0].set_result(None)
    compiler.compile(StructuredOutputsParams(regex="b"))


def test_a_model_that_knows_no_end_cannot_be_constrained():
    class Endless(ByteTokenizer):
        eos_token_ids = frozenset()

    compiler = LLGuidanceCompiler(Endless())
    error = compiler.compile(StructuredOutputsParams(regex="a")).exception(PATIENCE_S)
    assert isinstance(error, UnsupportedFeatureError)


def test_forced_text_is_spelled_as_the_model_would(compiler):
    """Of two ways to write what must come, the tokenizer's own is taken."""

    class Joining(ByteTokenizer):
        def encode(self, text, *, add_special_tokens=True, parse_special=False):
            if text.startswith(" "):  # as tokenizers do that put a space in front of every text
                return super().encode(text)
            head, found, tail = f" {text}".partition("stop")
            return [*super().encode(head), *([256 + 3, *super().encode(tail)] if found else [])]

    joined = LLGuidanceCompiler(Joining())
    assert after(joined, "", choice=["stop"]) == {256 + 3}
    assert after(compiler, "", choice=["stop"]) == {ord("s")}
