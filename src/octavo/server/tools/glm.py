"""GLM 4.5 and 4.6: ``<tool_call>name``, then ``<arg_key>city</arg_key><arg_value>Paris</arg_value>`` each.

As with Qwen3-Coder the values are bare text, and the arguments come in one piece.
"""

import re

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.text_reader import Steps, TextReader
from octavo.server.tools.typed_arguments import read_pairs, typed_arguments

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_NAME = re.compile(r"\s*([\w.-]+)\s*")
_ARGUMENT = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def parse_glm(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(OPENING))) is not None:
        if not (yield from _read_call(reader, calls)):
            yield ContentDelta(opening)
            continue
        yield from reader.skip_space()


def _read_call(reader: TextReader, calls: CallWriter) -> Steps[bool]:
    text = yield from reader.take_until(CLOSING)
    if text is None:
        return False
    name = _NAME.match(text)
    pairs = read_pairs(_ARGUMENT, text[name.end() :]) if name else None
    if name is None or pairs is None:
        reader.put_back(text + CLOSING)
        return False
    yield calls.begin(name[1], typed_arguments(pairs, calls.tools.get(name[1])))
    return True
