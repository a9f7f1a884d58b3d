"""Llama 3.1 to 3.3: an answer that is ``{"name": …, "parameters": {…}}``, perhaps behind ``<|python_tag|>``.

Several calls are divided by semicolons. Without the tag, an object is a call only if it names a declared
tool: any other may be the JSON that somebody asked for.
"""

from octavo.server.tools.call_writer import CallWriter
from octavo.server.tools.deltas import ContentDelta
from octavo.server.tools.json_call import read_json_call
from octavo.server.tools.text_reader import Steps, TextReader

PYTHON_TAG = "<|python_tag|>"


def parse_llama(reader: TextReader, calls: CallWriter) -> Steps[None]:
    """Read an answer."""
    opening = yield from reader.take_marker(PYTHON_TAG)
    if opening is None and (yield from _read_calls(reader, calls, declared_only=True)):
        opening = yield from reader.take_marker(PYTHON_TAG)
    while opening is not None or (opening := (yield from reader.copy_until(PYTHON_TAG))) is not None:
        if not (yield from _read_calls(reader, calls, declared_only=False)):
            yield ContentDelta(opening)
        opening = None


def _read_calls(reader: TextReader, calls: CallWriter, *, declared_only: bool) -> Steps[bool]:
    if not (yield from read_json_call(reader, calls, end=None, declared_only=declared_only)):
        return False
    while (separator := (yield from reader.take_marker(";"))) is not None:
        if not (yield from read_json_call(reader, calls, end=None, declared_only=declared_only)):
            reader.put_back(separator)
            break
    yield from reader.skip_space()
    return True
