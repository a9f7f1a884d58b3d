"""Phi-4-mini: ``functools[{"name": …, "arguments": {…}}, …]``, or a list between tool call marks."""

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.json_call import read_call_list
from octavo.server.tools.text_reader import Steps, TextReader

OPENINGS = ("functools", "<|tool_call|>")
CLOSING = "<|/tool_call|>"


def parse_phi4(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(*OPENINGS))) is not None:
        if not (yield from read_call_list(reader, calls)):
            yield ContentDelta(opening)
            continue
        yield from reader.take_marker(CLOSING)
        yield from reader.skip_space()
