"""Reading calls written as JSON objects: ``{"name": "get_time", "arguments": {"zone": "UTC"}}``.

With the name first, as models are taught, the arguments are passed on while they are being written: when
their opening brace is there the call has begun, and nothing takes it back. What the model then writes up to
the end of the call becomes part of the arguments even if it is no JSON, for the client to judge, as with
OpenAI. Before that, and for objects in another order, a call counts only once it is whole and right; until
then it is mere text.
"""

import json
import re
from typing import NamedTuple

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.json_scanner import JsonScanner
from octavo.server.tools.text_reader import Steps, TextReader

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*\{')


class _Call(NamedTuple):
    name: str
    arguments: str


def read_json_call(
    reader: TextReader, calls: CallWriter, *, end: str | None, declared_only: bool = False
) -> Steps[bool]:
    """Read one call, if that is what comes next.

    Args:
        reader: where it is read from; nothing is read if it is no call.
        calls: makes the deltas.
        end: the marker behind the call, up to which everything belongs to it; ``None`` if there is none.
        declared_only: whether only the name of a declared tool makes it a call.

    Returns:
        Whether it was a call.
    """
    if (yield from reader.peek()) != "{":
        return False
    scanner = JsonScanner()
    length = yield from _scan(reader, scanner, 0, (0, 2))
    head = _HEAD.fullmatch(reader.unread[:length])
    name = _name(json_value(head[1])) if head else None
    if name is not None and (not declared_only or name in calls.tools):
        reader.take(length - 1)
        yield calls.begin(name)
        yield from read_arguments(reader, calls, end=end)
        yield from _skip_rest(reader, end=end)
        return True
    if scanner.depth:
        length = yield from _scan(reader, scanner, length, (0,))
    call = None if scanner.is_broken or scanner.depth else _whole_call(reader.unread[:length])
    if call is None or (declared_only and call.name not in calls.tools):
        return False
    reader.take(length)
    yield calls.begin(call.name, call.arguments)
    return True


def read_call_list(reader: TextReader, calls: CallWriter) -> Steps[bool]:
    """Read calls in a JSON array; nothing is read if not even the first is one.

    Returns:
        Whether it was a list of calls.
    """
    separator = yield from reader.take_marker("[")
    if separator is None:
        return False
    num_before = calls.num_calls
    while separator is not None:
        if not (yield from read_json_call(reader, calls, end=None)):
            reader.put_back(separator)
            return calls.num_calls > num_before
        separator = yield from reader.take_marker(",")
    yield from reader.take_marker("]")
    return calls.num_calls > num_before


def read_arguments(reader: TextReader, calls: CallWriter, *, end: str | None) -> Steps[None]:
    """Pass on the object that comes next as arguments of the call begun last; ``end`` is not read."""
    scanner = JsonScanner()
    while True:
        if length := scanner.read(reader.unread, 0, (0,)):
            yield calls.more_arguments(reader.take(length))
        if scanner.has_stopped or reader.is_complete:
            break
        yield None
    if scanner.is_broken:
        markers = () if end is None else (end,)
        if found := (yield from reader.copy_until(*markers, delta=calls.more_arguments)):
            reader.put_back(found)


def json_value(text: str) -> object:
    """The value of JSON text; ``None`` if it is not valid. Line breaks in strings are forgiven."""
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value


def _scan(reader: TextReader, scanner: JsonScanner, start: int, stop_depths: tuple[int, ...]) -> Steps[int]:
    """Scan on, reading nothing; how many unread characters were scanned."""
    while True:
        start = scanner.read(reader.unread, start, stop_depths)
        if scanner.has_stopped or reader.is_complete:
            return start
        yield None


def _skip_rest(reader: TextReader, *, end: str | None) -> Steps[None]:
    """Skip the rest of an object behind its arguments: a brace, which models forget, or further members."""
    if (yield from reader.peek()) not in ("}", ","):
        return
    scanner = JsonScanner("{")
    length = yield from _scan(reader, scanner, 0, (0,))
    reader.take(length)
    if scanner.is_broken and end is not None and (yield from reader.take_until(end)) is not None:
        reader.put_back(end)


def _whole_call(text: str) -> _Call | None:
    value = json_value(text)
    if not isinstance(value, dict):
        return None
    name = _name(value.get("name", value.get("function")))
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # JSON in JSON
        arguments = json_value(arguments)
    elif arguments is None:
        arguments = {}
    if name is None or not isinstance(arguments, dict):
        return None
    return _Call(name, json.dumps(arguments, ensure_ascii=False))


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
