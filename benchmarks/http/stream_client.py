"""Streams completions from any OpenAI-compatible server over bare sockets, and notes when each part arrives.

A client library would cost more processor time per token than the server: this one splits lines, and
parses nothing but the first and the last.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

READ_LIMIT = 2**20
"""Longest line of an answer [bytes]."""


class ServerError(Exception):
    """A server answered with an error, or not as a server should; the message has what it said."""


@dataclass(slots=True)
class Answer:
    """One request as its client saw it; times are `time.perf_counter` [s]."""

    due_at: float
    """When it was to be sent. Latencies count from here: a client that lags behind must not hide it."""
    sent_at: float = 0.0
    part_times: list[float] = field(default_factory=list)
    """Of every part with text or tokens; servers send one per token, or several in one."""
    num_tokens: int = 0
    num_cached_tokens: int | None = None

    @property
    def first(self) -> float:
        """Time to the first token [s]."""
        return self.part_times[0] - self.due_at

    @property
    def gaps(self) -> list[float]:
        """Between one part and the next [s]."""
        return [after - before for before, after in zip(self.part_times, self.part_times[1:], strict=False)]


class StreamClient:
    """Sends completions to one server.

    Args:
        url: as in ``http://127.0.0.1:8000``.
        model: what the server calls its model.
    """

    def __init__(self, url: str, model: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._model = model

    async def complete(self, prompt: Sequence[int], max_tokens: int, due_at: float) -> Answer:
        """Wait until it is time, send a prompt of token ids, and read the stream to its end.

        Raises:
            ServerError: the answer is an error, or has another number of tokens.
        """
        body = self._body(prompt, max_tokens)
        await asyncio.sleep(max(due_at - time.perf_counter(), 0.0))
        answer = Answer(due_at, sent_at=time.perf_counter())
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=READ_LIMIT)
        try:
            writer.write(self._head(len(body)) + body)
            status = (await reader.readline()).split(b" ")[1:2]
            await reader.readuntil(b"\r\n\r\n")
            if status != [b"200"]:
                raise ServerError(f"{status}: {(await reader.read(2000)).decode('utf-8', 'replace')}")
            await self._read_parts(reader, answer)
        finally:
            writer.close()
        if answer.num_tokens != max_tokens:
            raise ServerError(f"{answer.num_tokens} tokens instead of {max_tokens}")
        return answer

    async def _read_parts(self, reader: asyncio.StreamReader, answer: Answer) -> None:
        last = b""
        async for line in reader:
            if not line.startswith(b"data:"):
                continue  # chunk lengths and empty lines
            if line.startswith(b"data: [DONE]"):
                break
            last = line
            if b'"choices":[]' not in line.replace(b" ", b""):
                answer.part_times.append(time.perf_counter())
        usage = _usage(last)
        answer.num_tokens = usage.get("completion_tokens", 0)
        answer.num_cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")

    def _body(self, prompt: Sequence[int], max_tokens: int) -> bytes:
        request = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(request).encode()

    def _head(self, length: int) -> bytes:
        return (
            f"POST /v1/completions HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {length}\r\n\r\n"
        ).encode()


def _usage(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line.removeprefix(b"data:"))
    except ValueError:
        raise ServerError(f"the last event is {line[:200]!r}") from None
    if "error" in event or not event.get("usage"):
        raise ServerError(f"the last event is {line[:500]!r}, without usage")
    return dict(event["usage"])
