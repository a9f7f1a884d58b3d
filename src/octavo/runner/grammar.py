"""`LLGuidanceCompiler`: constraints on a text become matchers, which say what the next token may be.

The work is done by llguidance, which is imported when the first constraint arrives. A constraint is compiled
in a thread of its own. Limits on its size, and on the work of compiling it and of each step, keep what a
client sends from holding up the others; who exceeds one fails alone.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from octavo.engine.tokenizer import Tokenizer
from octavo.errors import InvalidRequestError, QueueFullError, UnsupportedFeatureError
from octavo.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_COMPILED = 128
"""Compiled constraints that are kept, the least recently used leaving first."""
MAX_GBNF_LENGTH = 16_384
"""Characters of a GBNF grammar: turning its rules into Lark takes quadratic time."""
MAX_GRAMMAR_SYMBOLS = 20_000
MAX_ITEMS_PER_STEP = 5_000
"""Of the parser, to find the tokens that may follow; about a millisecond."""
MAX_LEXER_WORK_PER_STEP = 50_000
MAX_LEXER_STATES = 20_000
"""Of about a kilobyte each."""
MAX_WHITESPACE = 64
"""White-space characters in a row in JSON. A small model may write them for ever, and this ends it."""
MAX_ERROR_LENGTH = 200

_MARK = "\x02"
"""A character that no token joins with the one behind it."""
_WHITESPACE = rf"[\x20\x0A\x0D\x09]{{1,{MAX_WHITESPACE}}}"


class LLGuidanceCompiler:
    """Implements `octavo.engine.grammar.GrammarCompiler`. One thread uses it: that of the engine.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_trie: LLTokenizer | None = None  # only for the compiling thread
        self._compiled: OrderedDict[StructuredOutputsParams, Future[LLMatcher]] = OrderedDict()
        self._in_use: WeakValueDictionary[StructuredOutputsParams, Future[LLMatcher]] = WeakValueDictionary()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="octavo-grammar")

    def compile(self, params: StructuredOutputsParams) -> "Future[LLMatcher]":
        """Begin to compile, if that was not done before.

        The future ends with `InvalidRequestError` if the constraint is no valid one, with
        `UnsupportedFeatureError` if the model knows no end of a text.

        Raises:
            QueueFullError: too many are being compiled.
        """
        compiled = self._in_use.get(params)
        if compiled is None:
            self._make_room()
            compiled = self._executor.submit(self._compile, params)
            self._in_use[params] = self._compiled[params] = compiled
        elif params in self._compiled:
            self._compiled.move_to_end(params)
        return compiled

    def _make_room(self) -> None:
        if len(self._compiled) < MAX_COMPILED:
            return
        for params, compiled in self._compiled.items():
            if compiled.done():
                del self._compiled[params]
                return
        raise QueueFullError(
            f"{MAX_COMPILED} constraints of structured_outputs are being compiled; try again later"
        )

    def matcher(self, params: StructuredOutputsParams, output_token_ids: Sequence[int]) -> "LLMatcher":
        """A matcher for one request, which has generated these tokens already.

        Whoever holds what `compile` returned never waits here and is never refused, however many other
        constraints have come since.
        """
        matcher = self.compile(params).result().deep_copy()
        matcher.consume_tokens(list(output_token_ids))
        return matcher

    def close(self) -> None:
        """Compile nothing more; calling it again does nothing."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # ── in the compiling thread ──

    def _compile(self, params: StructuredOutputsParams) -> "LLMatcher":
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(
            max_grammar_size=MAX_GRAMMAR_SYMBOLS,
            step_max_items=MAX_ITEMS_PER_STEP,
            step_lexer_fuel=MAX_LEXER_WORK_PER_STEP,
            max_lexer_states=MAX_LEXER_STATES,
            verbose_errors=False,
        )
        try:
            grammar = _grammar(params)
        except ValueError as error:
            raise _wrong(params, str(error)) from None
        matcher = LLMatcher(self._trie(), grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _wrong(params, matcher.get_error())
        return matcher

    def _trie(self) -> "LLTokenizer":
        """All tokens by their bytes, made once: a tenth of a second for 49,000 tokens."""
        if self._token_trie is None:
            from llguidance import LLTokenizer, TokenizerWrapper

            vocabulary = _Vocabulary(self._tokenizer)
            self._token_trie = LLTokenizer(
                TokenizerWrapper(vocabulary),
                n_vocab=self._tokenizer.vocab_size,
                eos_token=sorted(self._tokenizer.eos_token_ids),
            )
        return self._token_trie


class _Vocabulary:
    """A tokenizer as llguidance asks for one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.eos_token_ids:
            raise UnsupportedFeatureError(
                "structured_outputs needs a model with an end-of-sequence token, and this one has none"
            )
        token_ids = range(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self._num_mark_tokens = len(tokenizer.encode(_MARK, add_special_tokens=False))
        self.eos_token_id = min(tokenizer.eos_token_ids)
        self.bos_token_id = tokenizer.bos_token_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in token_ids]
        self.special_token_ids = [token_id for token_id in token_ids if tokenizer.is_special(token_id)]

    def __call__(self, text: str | bytes) -> list[int]:
        """How the model would spell text that the grammar leaves no choice about."""
        if isinstance(text, bytes):
            text = text.decode()
        # Some tokenizers put a space in front of every text; behind another character there is none.
        return self._tokenizer.encode(_MARK + text, add_special_tokens=False)[self._num_mark_tokens :]


def _grammar(params: StructuredOutputsParams) -> str:
    """The constraint in llguidance's own form."""
    from llguidance import LLMatcher

    schema = '{"type": "object"}' if params.json_object else params.json
    if isinstance(schema, str):
        whitespace = None if params.disable_any_whitespace else _WHITESPACE
        return LLMatcher.grammar_from_json_schema(
            schema,
            defaults={
                "whitespace_flexible": not params.disable_any_whitespace,
                "whitespace_pattern": whitespace,
            },
        )
    if params.regex is not None:
        return LLMatcher.grammar_from_regex(params.regex)
    if params.choice is not None:
        return LLMatcher.grammar_from_lark("start: " + " | ".join(map(_lark_string, params.choice)))
    return LLMatcher.grammar_from_lark(_lark(params))


def _lark_string(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _lark(params: StructuredOutputsParams) -> str:
    """A grammar as Lark, turned into that if it is GBNF."""
    from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax

    grammar = str(params.grammar)
    if is_lark_syntax(grammar):
        return grammar
    if len(grammar) > MAX_GBNF_LENGTH:
        raise _wrong(
            params, f"GBNF may have at most {MAX_GBNF_LENGTH} characters, got {len(grammar)}; use Lark"
        )
    try:
        return gbnf_to_lark(grammar)
    except Exception as error:  # the converter has no error class of its own for all that can be wrong
        raise _wrong(params, f"it is neither Lark (no rule named start) nor GBNF: {error}") from None


def _wrong(params: StructuredOutputsParams, problem: str) -> InvalidRequestError:
    problem = " ".join(problem.split())
    if len(problem) > MAX_ERROR_LENGTH:
        problem = f"{problem[:MAX_ERROR_LENGTH]}…"
    return InvalidRequestError(
        f"structured_outputs: {params.kind} cannot be used: {problem}", param="structured_outputs"
    )
