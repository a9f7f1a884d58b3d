"""Bounds that hold before anything is read, parsed or allocated."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.server.body_room import BodyHold, BodyRoom
from octavo.server.errors import ApiError

BODY_TIMEOUT_S = 60.0
"""How long a client may take to send a body."""
MAX_LARGEST_BODIES = 32
"""As many bytes as so many of the largest bodies have are held at once, over all requests under way."""


class BodyMiddleware:
    """Reads the body, within its bounds, before the application sees the request.

    Args:
        app: gets the body in one piece.
        max_bytes: largest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._room = BodyRoom(MAX_LARGEST_BODIES * max_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, send)
            return
        with BodyHold(self._room, scope["state"]["tenant"].name) as hold:
            try:
                body = await self._read(Headers(scope=scope), receive, hold)
            except ApiError as error:
                await error.response()(scope, receive, send)
                return
            if body is not None:
                await self._app(scope, _Replay(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive, hold: BodyHold) -> bytes | None:
        """The body; ``None`` if the client went away."""
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_bytes:
            raise self._too_large(f"of {length[:20]}")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    part = message.get("body", b"")
                    if len(body) + len(part) > self._max_bytes:
                        raise self._too_large(f"of more than {self._max_bytes}")
                    hold.take(len(part))
                    body += part
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise ApiError(
                408, f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s", code="request_timeout"
            ) from None
        if body:
            _check_media_type(headers.get("content-type", ""))
        return bytes(body)

    def _too_large(self, size: str) -> ApiError:
        return ApiError(
            413,
            f"the body has a length {size} bytes, at most {self._max_bytes} are allowed (max_body_bytes); "
            f"send less in one request",
            code="request_too_large",
        )


class _Replay:
    """The body once, then whatever the server has to say, which is that the client went away."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _check_media_type(content_type: str) -> None:
    media_type = content_type.partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    if not is_json:
        raise ApiError(
            415,
            f"the body must be JSON with 'Content-Type: application/json', got {media_type[:80]!r}",
            code="unsupported_media_type",
        )


def check_num_choices(num_prompts: int, n: int, max_choices: int) -> None:
    """Refuse a request that asks for too many continuations.

    Raises:
        InvalidRequestError: it does.
    """
    if num_prompts * n > max_choices:
        raise InvalidRequestError(
            f"{num_prompts} prompts with n={n} are {num_prompts * n} continuations, but one request may ask "
            f"for at most {max_choices} (max_choices); send several requests",
            param="n" if n > 1 else "prompt",
        )


def check_room(num_prompt_tokens: int, max_tokens: int | None, max_model_len: int) -> None:
    """For servers that refuse what others clamp: ``max_tokens`` must fit behind the prompt.

    Raises:
        ContextLengthError: they do not.
    """
    if max_tokens is not None and num_prompt_tokens + max_tokens > max_model_len:
        raise ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens and max_tokens is {max_tokens}, but together they "
            f"may be at most {max_model_len} (max_model_len); lower max_tokens or shorten the prompt",
            param="max_tokens",
        )
