"""Log lines: one line each, whatever is in them, with the id of the request they are about."""

import io
import json
import logging

import pytest

from octavo.server.log_format import JsonFormatter, TextFormatter, current_request_id, set_up_logging


def record(message="something happened", *arguments, fields=None, error=None):
    exc_info = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("octavo.x", logging.WARNING, "file.py", 1, message, arguments, exc_info)
    made.created = 1_700_000_000.25
    if fields is not None:
        made.fields = fields
    return made


@pytest.fixture
def request_id():
    token = current_request_id.set("mine")
    yield "mine"
    current_request_id.reset(token)


def test_a_line_of_text():
    line = TextFormatter().format(record("took %d", 3, fields={"cause": "stop", "total_s": 0.123456}))
    assert line == "2023-11-14 22:13:20.250 WARNING octavo.x: took 3 cause=stop total_s=0.1235"


def test_a_value_cannot_pretend_to_be_another_value_or_another_line():
    line = TextFormatter().format(record("a\nb", fields={"id": "x cause=stop\n2023 INFO", "none": ""}))
    assert line.endswith(r'octavo.x: a\nb id="x cause=stop\n2023 INFO" none=""')


def test_a_json_line():
    line = json.loads(JsonFormatter().format(record("took %d", 3, fields={"cause": "stop"})))
    assert line == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "octavo.x",
        "message": "took 3",
        "cause": "stop",
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_the_request_being_handled_is_named(formatter, request_id):
    assert request_id in formatter.format(record())
    assert request_id not in formatter.format(record(fields={"request_id": "another"}))


def test_a_traceback_is_part_of_the_line():
    failed = record(error=ValueError("broken"))
    assert "ValueError: broken" in json.loads(JsonFormatter().format(failed))["traceback"]
    assert TextFormatter().format(failed).endswith("ValueError: broken")


def test_everything_logged_goes_to_the_stream_in_the_format_asked_for():
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        set_up_logging("json", stream)
        logging.getLogger("octavo.y").info("hello")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert json.loads(stream.getvalue())["message"] == "hello"
