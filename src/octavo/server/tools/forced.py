"""Calls that ``tool_choice`` forces: a grammar leaves the model nothing to write but a JSON list of calls."""

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.json_call import read_call_list
from octavo.server.tools.text_reader import Steps, TextReader


def parse_forced(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer; the white space around the list is none of its content."""
    if (yield from read_call_list(reader, calls)):
        yield from reader.skip_space()
    yield from reader.copy_until()
