"""`ObservationMiddleware`: gives every request an id, and counts what it was answered.

A client may choose the id (``X-Request-Id``); it is returned, logged and put into traces, and need not be
unique: it names nothing inside.
"""

import http
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.http_counts import HttpCounts
from octavo.server.log_format import current_request_id
from octavo.server.request_log import CLIENT_ID_KEY

REQUEST_ID_HEADER = "X-Request-Id"
MAX_REQUEST_ID_LENGTH = 128
UNMATCHED_PATH = "unmatched"
"""For whatever path leads nowhere: clients could make up any number of labels."""
_TRACE_CONTEXT = ("traceparent", "tracestate")
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class ObservationMiddleware:
    """Outermost of all, so that it sees every answer.

    Whoever refuses a request says why in ``scope["state"]["error_code"]``.
    """

    def __init__(self, app: ASGIApp, counts: HttpCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _given_id(Headers(scope=scope))
        scope.setdefault("state", {})
        current_request_id.set(given or uuid.uuid4().hex)

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if given is not None:
                    headers[REQUEST_ID_HEADER] = given
                else:  # an answer has an id of its own
                    headers.setdefault(REQUEST_ID_HEADER, str(current_request_id.get()))
                self._count(scope, message["status"])
            await send(message)

        await self._app(scope, receive, observe)

    def _count(self, scope: Scope, status: int) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        path = getattr(scope.get("route"), "path", UNMATCHED_PATH)
        reason = None
        if status >= http.HTTPStatus.BAD_REQUEST:
            reason = scope["state"].get("error_code") or str(status)
        self._counts.answered(method, path, status, reason)


def caller_headers(headers: Headers) -> dict[str, str]:
    """What the log and the traces of a request need of its headers."""
    given = _given_id(headers)
    found = {} if given is None else {CLIENT_ID_KEY: given}
    return found | {name: headers[name] for name in _TRACE_CONTEXT if name in headers}


def _given_id(headers: Headers) -> str | None:
    """The client's own id, if it can be put into a header and a log as it is."""
    given = headers.get(REQUEST_ID_HEADER, "")
    is_usable = len(given) <= MAX_REQUEST_ID_LENGTH and given.isascii() and given.isprintable()
    return given if given and is_usable else None
