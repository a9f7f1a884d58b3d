"""`ChatTemplate`: a model's jinja2 chat template, rendered in a sandbox."""

import datetime
import json
from collections.abc import Mapping
from typing import NoReturn

import jinja2

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.quoting import one_line
from octavo.models.template_growth import check_size
from octavo.models.template_sandbox import TemplateSandbox
from octavo.models.vocabulary import Vocabulary


class ChatTemplate:
    """A compiled template. What it may use, and how white space is treated, is what model authors test with.

    It is a program from a file that somebody else made: `TemplateSandbox` bounds its own size, every value
    it makes, its output and its steps.

    Attributes:
        source: the template's text.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str, origin: str) -> None:
        """Compile a template.

        Args:
            source: jinja2 text.
            bos_token: as the template writes it.
            eos_token: as the template writes it.
            origin: where the template comes from, for error messages.

        Raises:
            ModelLoadError: the template cannot be compiled.
        """
        self.source = source
        self._special_tokens = {"bos_token": bos_token, "eos_token": eos_token}
        sandbox = TemplateSandbox(
            filters={"tojson": _to_json},
            names={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
        )
        try:
            self._template = sandbox.compile_template(source)
        except Exception as error:  # it becomes Python on the way, which can fail in any way
            raise ModelLoadError(f"{origin}: the chat template is not valid: {_reason(error)}") from None

    def render(
        self,
        messages: object,
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The conversation as text, with special tokens written out.

        Raises:
            InvalidRequestError: the template refuses the messages, fails on them, or does too much.
        """
        names = {**self._special_tokens, "tools": None, "documents": None, **(variables or {})}
        names |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(names)
        except Exception as error:  # a template is a program of its own: it can fail in any way
            raise InvalidRequestError(
                f"the chat template cannot render these messages: {_reason(error)}", param="messages"
            ) from None


def compile_chat_template(source: str, vocabulary: Vocabulary, *, origin: str) -> ChatTemplate:
    """A template for a model with this vocabulary.

    Args:
        source: jinja2 text.
        vocabulary: whose special tokens the template may write.
        origin: where the template comes from, for error messages.

    Raises:
        ModelLoadError: the template cannot be compiled.
    """
    bos, eos = vocabulary.text_of(vocabulary.bos_token_id), vocabulary.text_of(vocabulary.eos_token_id)
    return ChatTemplate(source, bos_token=bos, eos_token=eos, origin=origin)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Not jinja2's own filter: that one escapes for HTML, which no model was trained on.
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        return encoder.encode(value)
    parts, length = [], 0
    for part in encoder.iterencode(value):  # indented at every level: how long it gets shows on the way
        parts.append(part)
        length += len(part)
        check_size(length)
    return "".join(parts)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    # Local time without its zone, as everywhere else: what a pattern asks of a zone is empty.
    return datetime.datetime.now().astimezone().replace(tzinfo=None).strftime(pattern)


def _reason(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__
