"""Granite 3: ``<|tool_call|>[{"name": …, "arguments": {…}}, …]``; 3.0 has the marker ``<function_call>``."""

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.json_call import read_call_list
from octavo.server.tools.text_reader import Steps, TextReader

OPENINGS = ("<|tool_call|>", "<function_call>")


def parse_granite(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(*OPENINGS))) is not None:
        if not (yield from read_call_list(reader, calls)):
            yield ContentDelta(opening)
            continue
        yield from reader.skip_space()
