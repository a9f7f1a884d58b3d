"""Hermes, and Qwen 2.5 and 3: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, once per call."""

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.json_call import read_json_call
from octavo.server.tools.text_reader import Steps, TextReader

OPENING, CLOSING = "<tool_call>", "</tool_call>"


def parse_hermes(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(OPENING))) is not None:
        if not (yield from read_json_call(reader, calls, end=CLOSING)):
            yield ContentDelta(opening)
            continue
        yield from reader.take_marker(CLOSING)
        yield from reader.skip_space()
