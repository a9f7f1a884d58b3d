"""Qwen3-Coder: ``<tool_call><function=name><parameter=city>Paris</parameter></function></tool_call>``.

The values are bare text: what they are in JSON follows from the tool's schema, and the whole call is needed
to see that it is one, so that its arguments come in one piece. The outer marks may be missing.
"""

import re

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.text_reader import Steps, TextReader
from octavo.server.tools.typed_arguments import read_pairs, typed_arguments

OPENING, CLOSING = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


def parse_qwen_coder(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(OPENING, FUNCTION))) is not None:
        if opening.endswith(OPENING):
            opening += (yield from reader.take_marker(FUNCTION)) or ""
        if not opening.endswith(FUNCTION) or not (yield from _read_function(reader, calls)):
            yield ContentDelta(opening)
            continue
        yield from reader.take_marker(CLOSING)
        yield from reader.skip_space()


def _read_function(reader: TextReader, calls: CallWriter) -> Steps[bool]:
    text = yield from reader.take_until(FUNCTION_END)
    if text is None:
        return False
    name, _, parameters = text.partition(">")
    pairs = read_pairs(_PARAMETER, parameters)
    if not name or pairs is None or any(character.isspace() for character in name):
        reader.put_back(text + FUNCTION_END)
        return False
    yield calls.begin(name, typed_arguments(pairs, calls.tools.get(name)))
    return True
