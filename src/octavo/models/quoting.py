"""How text from a model file is shown to people: short, in one line, and without terminal escapes."""

_LONGEST_QUOTE = 60
_LONGEST_LINE = 300


def quote(value: object) -> str:
    """The value in quotation marks, as Python writes it, cut to some 60 characters."""
    cut = value[: _LONGEST_QUOTE + 1] if isinstance(value, str | bytes) else value
    return _shortened(repr(cut), _LONGEST_QUOTE)


def one_line(text: str, *, longest: int = _LONGEST_LINE) -> str:
    """The text with every run of white space and of control characters as one space, cut if it is long."""
    cut = text[: 4 * longest]
    visible = "".join(character if character.isprintable() else " " for character in cut)
    return _shortened(" ".join(visible.split()), longest)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
