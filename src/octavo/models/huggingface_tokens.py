"""`TokenizerConfig`: what a folder says of its tokenizer outside of ``tokenizer.json``."""

from collections.abc import Mapping
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.models.chat_templates import DEFAULT, TemplateSource, read_template_file
from octavo.models.json_document import read_json_file
from octavo.models.quoting import quote

_MAX_CONFIG_BYTES = 8 << 20
"""Some configurations repeat every added token."""
_MAX_TEMPLATE_BYTES = 1 << 20
_TEMPLATE_FILE = "chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"


class TokenizerConfig:
    """``tokenizer_config.json``, if there is one, and the files of chat templates.

    Attributes:
        bos_token: the beginning-of-sequence token as written.
        eos_token: the end-of-sequence token as written.
        adds_bos: whether texts get BOS in front; ``None`` leaves that to ``tokenizer.json``.
        adds_eos: the same for EOS behind.
    """

    def __init__(self, folder: Path) -> None:
        """Read the files.

        Raises:
            ModelLoadError: one of them is malformed.
        """
        self._folder = folder
        self._path = folder / "tokenizer_config.json"
        exists = self._path.is_file()
        self._values = read_json_file(self._path, max_bytes=_MAX_CONFIG_BYTES) if exists else {}
        self.bos_token, self.eos_token = self._token("bos_token"), self._token("eos_token")
        self.adds_bos, self.adds_eos = self._flag("add_bos_token"), self._flag("add_eos_token")

    def template_sources(self) -> Mapping[str, TemplateSource]:
        """Chat templates by name. Those in files of their own come before those in the configuration.

        Raises:
            ModelLoadError: a template cannot be read.
        """
        files = {DEFAULT: self._folder / _TEMPLATE_FILE}
        files |= {path.stem: path for path in sorted((self._folder / _MORE_TEMPLATES).glob("*.jinja"))}
        found = {
            name: TemplateSource(_read(path), str(path)) for name, path in files.items() if path.is_file()
        }
        return {**self._configured(), **found}

    def _configured(self) -> dict[str, TemplateSource]:
        value = self._values.get("chat_template")
        if value is None:
            return {}
        origin = str(self._path)
        if isinstance(value, str):
            return {DEFAULT: TemplateSource(value, origin)}
        named = {}
        for entry in value if isinstance(value, list) else [value]:
            pair = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
            if not isinstance(pair[0], str) or not isinstance(pair[1], str):
                raise ModelLoadError(
                    f"{origin}: chat_template must be a text, or a list of templates with a name each"
                )
            named[pair[0]] = TemplateSource(pair[1], origin)
        return named

    def _token(self, name: str) -> str | None:
        value = self._values.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None and not isinstance(text, str):
            raise ModelLoadError(f"{self._path}: {name} must be a token, found {quote(value)}")
        return text

    def _flag(self, name: str) -> bool | None:
        value = self._values.get(name)
        return value if isinstance(value, bool) else None


def _read(path: Path) -> str:
    size = path.stat().st_size
    if size > _MAX_TEMPLATE_BYTES:
        raise ModelLoadError(
            f"{path}: a chat template of {size:,} bytes; at most {_MAX_TEMPLATE_BYTES:,} are read"
        )
    return read_template_file(path)
