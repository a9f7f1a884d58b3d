"""Server-sent events: a stream of answers, and what ends it."""

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.disconnect import until_disconnect
from octavo.server.errors import ClientDisconnectedError, as_api_error

logger = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy must not hold events back
}


def event(data: object) -> str:
    """One event."""
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"


class EventStream(Response):
    """Sends events as they come.

    The response begins with the first event: an error before it is a response of its own, with its own
    status. An error after it is the last event. When the client goes away, the events are closed.

    Args:
        events: each item is one or more whole events.
        headers: further headers of the response.
        request_id: for the log.
    """

    def __init__(
        self, events: AsyncGenerator[str, None], headers: Mapping[str, str], *, request_id: str
    ) -> None:
        super().__init__(headers={**headers, **_HEADERS})
        del self.headers["content-length"]
        self._events = events
        self._request_id = request_id

    async def __call__(  # type: ignore[explicit-override]  # typing.override needs 3.12
        self,
        scope: Scope,  # noqa: ARG002
        receive: Receive,
        send: Send,
    ) -> None:
        """Send everything."""
        try:
            await until_disconnect(receive, self._send_all(send))
        except ClientDisconnectedError:
            logger.info("request %s aborted: the client went away", self._request_id)

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            first = await anext(events)
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await self._send(send, first)
            try:
                async for text in events:
                    await self._send(send, text)
            except Exception as error:
                await self._send(send, self._error_event(error))
            else:
                await self._send(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, text: str) -> None:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    def _error_event(self, error: Exception) -> str:
        told = as_api_error(error)
        if told.status == 500:
            logger.error("request %s failed", self._request_id, exc_info=error)
        return event(told.body())
