"""DeepSeek V3 and R1, which put arguments into a fenced block, and V3.1, which does not.

V3: ``<｜tool▁call▁begin｜>function<｜tool▁sep｜>name``, a line break, and the object fenced as ``json``.
V3.1: ``<｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}``. Both end with ``<｜tool▁call▁end｜>``.
"""

import re

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.json_call import read_arguments
from octavo.server.tools.text_reader import Steps, TextReader

ALL_BEGIN, ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
BEGIN, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_HEAD = re.compile(
    rf"(?:function{SEPARATOR}(?P<fenced>[\w.-]+)\s*```(?:json)?|(?P<bare>[\w.-]+){SEPARATOR})\s*"
)


def parse_deepseek(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    while (opening := (yield from reader.copy_until(ALL_BEGIN))) is not None:
        num_before = calls.num_calls
        while (begin := (yield from reader.take_marker(BEGIN))) is not None:
            if not (yield from _read_call(reader, calls)):
                reader.put_back(begin)
                break
        if calls.num_calls == num_before:
            yield ContentDelta(opening)
            continue
        yield from reader.take_marker(ALL_END)
        yield from reader.skip_space()


def _read_call(reader: TextReader, calls: CallWriter) -> Steps[bool]:
    text = yield from reader.take_until("{")
    if text is None:
        return False
    reader.put_back("{")
    head = _HEAD.fullmatch(text)
    if head is None:
        reader.put_back(text)
        return False
    yield calls.begin(head["fenced"] or head["bare"])
    yield from read_arguments(reader, calls, end="```" if head["fenced"] else END)
    yield from reader.take_marker("```")
    yield from reader.take_marker(END)
    return True
