"""Refuse what would only be refused later, before anything is spent on it."""

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError

QUEUED_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})


class OverloadMiddleware:
    """Counts the requests that are being answered, and refuses more than the engine can hold.

    The engine decides by itself, between two steps, with the numbers of the moment. But where as many
    requests are open as can run and wait together, its queue must be full, and reading and tokenizing one
    more prompt would cost those who are being served.

    Args:
        app: answers the others.
        max_open_requests: as many as can run and wait.
    """

    def __init__(self, app: ASGIApp, max_open_requests: int) -> None:
        self._app = app
        self._max_open_requests = max_open_requests
        self._num_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] not in QUEUED_PATHS or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._num_open >= self._max_open_requests:
            await self._refusal().response()(scope, receive, send)
        else:
            self._num_open += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._num_open -= 1

    def _refusal(self) -> ApiError:
        return ApiError(
            503,
            f"{self._num_open} requests are running or waiting, and no more than {self._max_open_requests} "
            f"can (max_num_seqs and max_waiting_requests together); try again later",
            code="overloaded",
        )
