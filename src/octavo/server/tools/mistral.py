"""Mistral: ``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]``, later ``[TOOL_CALLS]name[ARGS]{…}`` each."""

import re

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.json_call import read_arguments, read_call_list
from octavo.server.tools.text_reader import Steps, TextReader

OPENING = "[TOOL_CALLS]"
_NAME = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\]\s*)?")


def parse_mistral(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(OPENING))) is not None:
        is_list = (yield from reader.peek()) == "["
        read = read_call_list if is_list else _read_named_call
        if not (yield from read(reader, calls)):
            yield ContentDelta(opening)
            continue
        yield from reader.skip_space()


def _read_named_call(reader: TextReader, calls: CallWriter) -> Steps[bool]:
    head = yield from reader.take_until("{")
    if head is None:
        return False
    reader.put_back("{")
    name = _NAME.fullmatch(head)
    if name is None:
        reader.put_back(head)
        return False
    yield calls.begin(name[1])
    yield from read_arguments(reader, calls, end=OPENING)
    return True
