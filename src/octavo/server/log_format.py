"""Log lines, for people or for machines. What a line says beside its words is ``extra={"fields": {…}}``."""

import json
import logging
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]

current_request_id: ContextVar[str | None] = ContextVar("current_request_id", default=None)
"""Of the HTTP request that is being handled, for whatever is logged on the way."""

MAX_VALUE_LENGTH = 1000
"""Characters of one value in a line of text."""


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What belongs to a record beside its words."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    request_id = current_request_id.get()
    if request_id is None or "request_id" in fields:
        return dict(fields)
    return {"request_id": request_id, **fields}


class TextFormatter(logging.Formatter):
    """``2026-11-29 21:04:05.678 INFO octavo.server: words key=value``, one line but for a traceback."""

    def format(self, record: logging.LogRecord) -> str:  # type: ignore[explicit-override]
        """The line."""
        when = _when(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        words = _one_line(record.getMessage())
        pairs = "".join(f" {name}={_shown(value)}" for name, value in fields_of(record).items())
        line = f"{when} {record.levelname} {record.name}: {words}{pairs}"
        return f"{line}\n{_trace(record)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line; a traceback is a value in it."""

    def format(self, record: logging.LogRecord) -> str:  # type: ignore[explicit-override]
        """The line."""
        line: dict[str, Any] = {
            "time": _when(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = _trace(record)
        return json.dumps(line, default=str)


def set_up_logging(log_format: LogFormat, stream: TextIO, level: int = logging.INFO) -> None:
    """Write everything that is logged in this process to ``stream``, in this format."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _trace(record: logging.LogRecord) -> str:
    return "".join(traceback.format_exception(*record.exc_info)).rstrip() if record.exc_info else ""


def _shown(value: object) -> str:
    """A value that cannot be taken for the next one, nor for the next line."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)[:MAX_VALUE_LENGTH]
    return text if text.isprintable() and text and not {" ", '"', "="} & set(text) else json.dumps(text)


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")
