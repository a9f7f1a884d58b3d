"""`ChatTemplates`: the templates that come with a model. Most have one, some a second one for tools."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from octavo.errors import InvalidRequestError, ModelLoadError
from octavo.models.chat_template import ChatTemplate, compile_chat_template
from octavo.models.gguf_metadata import Metadata
from octavo.models.quoting import quote
from octavo.models.vocabulary import Vocabulary

DEFAULT = "default"
TOOL_USE = "tool_use"
"""The name of the template for conversations with tools, if a model has one of its own."""

_MAX_TEMPLATES = 16


class TemplateSource(NamedTuple):
    """A template as found in a file."""

    text: str
    """jinja2"""
    origin: str
    """Where it comes from, for error messages."""


class ChatTemplates:
    """Compiled templates by name.

    Attributes:
        by_name: all of them.
    """

    def __init__(self, by_name: Mapping[str, ChatTemplate]) -> None:
        self.by_name = by_name

    @property
    def default(self) -> ChatTemplate | None:
        """The one for conversations without further wishes."""
        return self.by_name.get(DEFAULT)

    def choose(self, *, has_tools: bool) -> ChatTemplate:
        """The template for a conversation that names none.

        Raises:
            InvalidRequestError: there is none for it.
        """
        template = (self.by_name.get(TOOL_USE) if has_tools else None) or self.default
        if template is not None:
            return template
        if self.by_name:
            names = ", ".join(quote(name) for name in self.by_name)
            raise InvalidRequestError(
                f"the model has the chat templates {names} and none is the default: name one as"
                " chat_template, or give one with --chat-template FILE",
                param="chat_template",
            )
        raise InvalidRequestError(
            "the model has no chat template: give one with --chat-template FILE, or send a plain prompt"
        )


def compile_chat_templates(
    sources: Mapping[str, TemplateSource], vocabulary: Vocabulary, *, replacement: Path | None = None
) -> ChatTemplates:
    """Templates for a model with this vocabulary.

    Args:
        sources: those that the model comes with.
        vocabulary: whose special tokens the templates may write.
        replacement: a file with a template to use instead of all of them.

    Raises:
        ModelLoadError: a template cannot be read or compiled, or there are too many.
    """
    if replacement is not None:
        sources = {DEFAULT: TemplateSource(read_template_file(replacement), str(replacement))}
    if len(sources) > _MAX_TEMPLATES:
        origin = next(iter(sources.values())).origin
        raise ModelLoadError(
            f"{origin}: has {len(sources):,} chat templates; at most {_MAX_TEMPLATES} are read"
        )
    return ChatTemplates(
        {
            name: compile_chat_template(source.text, vocabulary, origin=source.origin)
            for name, source in sources.items()
        }
    )


def gguf_template_sources(metadata: Metadata) -> dict[str, TemplateSource]:
    """The templates in a GGUF file, by name."""
    key = "tokenizer.chat_template"
    keys = {DEFAULT: key} | {name: f"{key}.{name}" for name in metadata.texts(f"{key}s") or []}
    texts = {name: metadata.text(found) for name, found in keys.items()}
    return {
        name: TemplateSource(text, str(metadata.path)) for name, text in texts.items() if text is not None
    }


def read_template_file(path: Path) -> str:
    """The text of a template file.

    Raises:
        ModelLoadError: it cannot be read, or is no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ModelLoadError(f"{path}: the chat template cannot be read: {reason}") from None
