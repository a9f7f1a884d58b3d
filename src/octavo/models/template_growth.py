"""How large values of a chat template are, and how much larger what an operation makes of them can be."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType

import jinja2

MAX_CHARACTERS = 1 << 23
"""Of one value, with everything in it: more than any context length can use."""

MAX_ITEMS = 1 << 20
"""Of one value: lists and mappings with all they hold."""

_MAX_INTEGER_BITS = 1 << 16
_LONGEST_SEPARATOR = 16
_LONGEST_FLOAT = 24
_NUMBER = re.compile(r"\d+")

Growth = Callable[[object, Sequence[object]], int]
"""From the subject and the other arguments of an operation."""


class TemplateLimitError(jinja2.TemplateError):
    """A template does too much; the message names the limit."""


def check_size(num_characters: int) -> None:
    """Refuse a value of this size.

    Raises:
        TemplateLimitError: it is too large.
    """
    if num_characters > MAX_CHARACTERS:
        raise TemplateLimitError(f"a value would have more than {MAX_CHARACTERS:,} characters")


def size_of(*values: object) -> tuple[int, int]:
    """Characters and items of all values, with everything they hold, as often as they hold it.

    Raises:
        TemplateLimitError: they are too large; how large they are is not looked at any further.
    """
    size = num_items = 0
    pending = list(values)
    while pending:
        value = pending.pop()
        num_items += 1
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list):
            pending += value
        else:
            size += _size_of_one(value, pending)
        if num_items + len(pending) > MAX_ITEMS:
            raise TemplateLimitError(f"a value would hold more than {MAX_ITEMS:,} items")
    check_size(size)
    return size, num_items


def _size_of_one(value: object, pending: list[object]) -> int:
    """Characters of what is neither a text nor a list; what it holds is added to what is pending."""
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, float | None):
        return _LONGEST_FLOAT
    if isinstance(value, Mapping):
        pending += [*value.keys(), *value.values()]
        return 0
    if isinstance(value, Sequence | Set):
        pending += value
        return 0
    return 1  # the caller's own objects: how long they are as text is not known


def growth_of(operation: str, subject: object, arguments: Sequence[object]) -> int:
    """Upper bound of the characters or items that the result has beyond those that go in.

    Args:
        operation: an operator, or the name of a filter, test or method.
        subject: its left side, or the value it is applied to.
        arguments: everything else it is given.

    Raises:
        TemplateLimitError: the result would be a number that is too large.
    """
    rule = _RULES.get(operation)
    return rule(subject, arguments) if rule else 0


def _padded(_: object, arguments: Sequence[object]) -> int:
    return max((abs(argument) for argument in arguments if isinstance(argument, int)), default=0)


def _joined(subject: object, arguments: Sequence[object]) -> int:
    return _longest_text(arguments) * _length(subject)


def _replaced(subject: object, arguments: Sequence[object]) -> int:
    text = str(subject)
    occurrences = max((text.count(old) for old in arguments if isinstance(old, str)), default=0)
    return _longest_text(arguments) * occurrences


def _indented(subject: object, arguments: Sequence[object]) -> int:
    return max(_longest_text(arguments), _padded(subject, arguments)) * (len(str(subject).splitlines()) + 1)


def _tabs_expanded(subject: object, arguments: Sequence[object]) -> int:
    return _padded(subject, arguments or [8]) * str(subject).count("\t")


def _written_as_json(subject: object, arguments: Sequence[object]) -> int:
    """By the separators; what an indent adds is counted while it is written."""
    longest = _longest_text(arguments)
    return longest * size_of(subject)[0] if longest > _LONGEST_SEPARATOR else _padded(subject, arguments)


def _summed(subject: object, arguments: Sequence[object]) -> int:
    adds_lists = any(isinstance(start, Sequence) and not isinstance(start, str) for start in arguments)
    return _length(subject) * size_of(subject)[0] if adds_lists else 0


def _formatted(subject: object, arguments: Sequence[object]) -> int:
    if not isinstance(subject, str):
        return 0
    num_fields = subject.count("%") + subject.count("{")
    if not num_fields:
        return 0
    size, _ = size_of(*arguments)
    # A width is written in the text or is itself an argument, perhaps within a tuple or as text.
    return num_fields * (size + max(_numbers_in(subject)) + max(_numbers_in(str(arguments))))


def _multiplied(left: object, arguments: Sequence[object]) -> int:
    right = arguments[0]
    if isinstance(left, int) and isinstance(right, int):
        return _digits(left.bit_length() + right.bit_length())
    sequence, times = (right, left) if isinstance(left, int) else (left, right)
    return size_of(sequence)[0] * max(times, 0) if isinstance(times, int) and _length(sequence) else 0


def _raised(base: object, arguments: Sequence[object]) -> int:
    exponent = arguments[0]
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        return _digits(base.bit_length() * abs(exponent))
    return 0


def _digits(num_bits: int) -> int:
    if num_bits > _MAX_INTEGER_BITS:
        raise TemplateLimitError(f"a number would have more than {_MAX_INTEGER_BITS:,} bits")
    return num_bits // 3


def _numbers_in(text: str) -> Iterator[int]:
    """The numbers written in a text, as far as they matter."""
    yield 0
    for digits in _NUMBER.findall(text):
        yield int(digits) if len(digits) < len(str(MAX_CHARACTERS)) else MAX_CHARACTERS


def _longest_text(values: Sequence[object]) -> int:
    return max((len(text) for value in values for text in _texts_in(value)), default=0)


def _texts_in(value: object) -> Iterator[str]:
    """The text itself, or those of a pair such as the separators of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence) and not isinstance(value, bytes | range):
        yield from filter(_is_text, value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _length(value: object) -> int:
    return len(value) if isinstance(value, Sequence | Set | Mapping) else 0


_RULES: Mapping[str, Growth] = MappingProxyType(
    dict.fromkeys(("center", "ljust", "rjust", "zfill", "batch", "slice", "round", "truncate"), _padded)
    | {
        "*": _multiplied,
        "**": _raised,
        "%": _formatted,
        "format": _formatted,
        "format_map": _formatted,
        "join": _joined,
        "replace": _replaced,
        "indent": _indented,
        "expandtabs": _tabs_expanded,
        "tojson": _written_as_json,
        "sum": _summed,
    }
)
