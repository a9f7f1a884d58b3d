"""`Connection`: uvicorn's HTTP connection, with bounds on what a client may hold before it says who it is.

uvicorn itself waits for ever for a request to begin and for an answer to be read, and keeps headers of any
length.
"""

import asyncio
import http
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from octavo.server.errors import ApiError

HEAD_TIMEOUT_S = 30.0
"""How long a client may take to send the head of a request."""
READ_TIMEOUT_S = 60.0
"""How long a client may read nothing while its answer waits to be sent."""
MAX_HEAD_BYTES = 65_536
"""Of a request line and headers that do not arrive in one piece."""


class Connection(HttpToolsProtocol):
    """One connection: clients that take too long, or whose headers do not end, lose it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._is_in_head = False
        self._num_head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[explicit-override,override]
        """A client is there."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:  # type: ignore[explicit-override]
        """The client is gone."""
        super().connection_lost(exc)
        _cancel(self._head_timer)
        _cancel(self._read_timer)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        """Something has arrived."""
        super().data_received(data)
        if self._is_in_head:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                limit = f"at most {MAX_HEAD_BYTES} bytes are allowed"
                self._refuse(ApiError(431, f"the headers are too long; {limit}", code="headers_too_large"))
        if self._is_between_requests:
            self._await_head()

    def on_message_begin(self) -> None:  # type: ignore[explicit-override]
        """The head of a request begins."""
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes = True, 0

    def on_headers_complete(self) -> None:  # type: ignore[explicit-override]
        """The head of a request has ended."""
        self._is_in_head = False
        _cancel(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()

    def pause_writing(self) -> None:  # type: ignore[explicit-override]
        """The client does not read as fast as it is written to."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:  # type: ignore[explicit-override]
        """The client has read."""
        super().resume_writing()
        _cancel(self._read_timer)

    def send_400_response(self, msg: str) -> None:  # type: ignore[explicit-override]
        """Refuse what is no HTTP, in the shape of all errors."""
        self._refuse(ApiError(400, msg, code="invalid_http"))

    @property
    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # declared as if it were always there
        return cycle is None or cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _refuse(self, error: ApiError) -> None:
        response = error.response()
        lines = [f"HTTP/1.1 {error.status} {http.HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        head = "\r\n".join([*lines, "connection: close", "", ""])
        self.transport.write(head.encode() + bytes(response.body))
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
