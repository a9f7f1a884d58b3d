"""A small HTTP client on asyncio's sockets: it can hang up in mid-answer, and costs little."""

import asyncio
import json
from urllib.parse import urlsplit


class Answer:
    """Status, headers, and the body as far as it was read."""

    def __init__(self, status, headers):
        self.status = status
        self.headers = headers
        self.body = b""

    def json(self):
        return json.loads(self.body)


class Exchange:
    """One request on a connection of its own."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    @classmethod
    async def begin(cls, url, path, body=None, *, method=None, content_type="application/json"):
        """Connect and send; ``body`` is bytes, or what is to be sent as JSON."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**24)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        head = f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        if data:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(data)}\r\n"
        writer.write(head.encode() + b"\r\n" + data)
        await writer.drain()
        return cls(reader, writer)

    async def answer(self):
        """The head of the answer."""
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        return Answer(int(first.split()[1]), headers)

    async def whole(self):
        """The answer with its body."""
        answer = await self.answer()
        raw = await self._reader.read()
        answer.body = _joined(raw) if answer.headers.get("transfer-encoding") == "chunked" else raw
        self.hang_up()
        return answer

    async def events(self):
        """The data of each server-sent event; the head must have been read."""
        async for line in self._reader:
            if line.startswith(b"data: "):
                yield line[6:].strip()

    def hang_up(self):
        """Close the connection, whatever is still to come."""
        self._writer.transport.abort()


async def ask(url, path, body=None, **options):
    """A whole exchange."""
    return await (await Exchange.begin(url, path, body, **options)).whole()


def _joined(raw):
    """A body that was sent in chunks."""
    body = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size, 16)
        body, raw = body + raw[:length], raw[length + 2 :]
    return body
