"""`ChatTemplate`: a model's jinja2 chat template, rendered in a sandbox."""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.gguf_metadata import Metadata
from octavo.models.vocabulary import Vocabulary


class ChatTemplate:
    """A compiled template. What it may use, and how white space is treated, is what model authors test with.

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
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelLoadError(f"{origin}: the chat template is not valid: {_one_line(error)}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The conversation as text, with special tokens written out.

        Raises:
            InvalidRequestError: the template refuses the messages, or fails on them.
        """
        names = {**self._special_tokens, "tools": None, "documents": None, **(variables or {})}
        names |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(names)
        except Exception as error:  # a template is a program of its own: it can fail in any way
            raise InvalidRequestError(
                f"the chat template cannot render these messages: {_one_line(error)}", param="messages"
            ) from None


def read_chat_template(
    metadata: Metadata, vocabulary: Vocabulary, *, replacement: Path | None = None
) -> ChatTemplate | None:
    """The template in the file ``replacement``, else the model's own, else ``None``.

    Raises:
        ModelLoadError: the template cannot be read or compiled.
    """
    source, origin = metadata.text("tokenizer.chat_template"), metadata.path
    if replacement is not None:
        source, origin = _read_text(replacement), replacement
    if source is None:
        return None
    bos, eos = vocabulary.text_of(vocabulary.bos_token_id), vocabulary.text_of(vocabulary.eos_token_id)
    return ChatTemplate(source, bos_token=bos, eos_token=eos, origin=str(origin))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ModelLoadError(f"{path}: the chat template cannot be read: {reason}") from None


def _environment() -> jinja2.Environment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Not jinja2's own filter: that one escapes for HTML, which no model was trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
