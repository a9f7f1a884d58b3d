"""Every error a client can see, in the OpenAI API's shape. The one place that maps exceptions to HTTP.

{"error": {"message": …, "type": …, "param": …, "code": …}}
"""

import http
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from octavo.diagnostics import shown
from octavo.errors import (
    CapacityError,
    ContextLengthError,
    DrainingError,
    EngineDeadError,
    EngineError,
    QueueShareError,
    QueueTimeoutError,
    RequestError,
    UnsupportedFeatureError,
)

logger = logging.getLogger(__name__)

RETRY_AFTER_S = {429: 1, 503: 2}
"""What a refused client is asked to wait. Overload passes quickly: a step takes milliseconds."""


class ApiError(Exception):
    """An error as a client sees it.

    Args:
        status: of the response.
        message: what was got, the limit and the way out.
        param: the field at fault.
        code: for programs.
        headers: of the response, beside what the status asks for.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        retry_after = RETRY_AFTER_S.get(status)
        self.headers = {**(headers or {}), **({"Retry-After": str(retry_after)} if retry_after else {})}

    @property
    def type(self) -> str:
        """The OpenAI API's name for errors of this status."""
        return _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The whole response."""
        response = _ErrorResponse(self.body(), self.status, self.headers)
        response.code = self.code
        return response


class _ErrorResponse(JSONResponse):
    """Says in the request's state why it was refused, for whoever counts that."""

    code: str | None = None

    async def __call__(  # type: ignore[explicit-override]  # typing.override needs 3.12
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send it."""
        scope.setdefault("state", {})["error_code"] = self.code
        await super().__call__(scope, receive, send)


class ClientDisconnectedError(Exception):
    """Nobody is left to read the answer."""


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


class _Mapping(NamedTuple):
    status: int
    code: str | None


# The first class that fits counts.
_MAPPINGS: tuple[tuple[type[Exception], _Mapping], ...] = (
    (ContextLengthError, _Mapping(400, "context_length_exceeded")),
    (UnsupportedFeatureError, _Mapping(400, "unsupported_feature")),
    (RequestError, _Mapping(400, "invalid_value")),
    (QueueShareError, _Mapping(429, "rate_limit_exceeded")),
    (QueueTimeoutError, _Mapping(503, "queue_timeout")),
    (DrainingError, _Mapping(503, "shutting_down")),
    (CapacityError, _Mapping(503, "overloaded")),
    (EngineDeadError, _Mapping(503, "engine_dead")),
    (EngineError, _Mapping(500, "generation_failed")),
)

_SCALARS = frozenset({"str", "int", "float", "bool"})
_STATUS_HINTS = {
    404: "there is no {path}; see /docs for what there is",
    405: "{path} does not answer {method}; see /docs for what it does",
}


def as_api_error(error: Exception) -> ApiError:
    """What a client is told about an exception. Only Octavo's own messages reach it."""
    if isinstance(error, ApiError):
        return error
    for kind, mapping in _MAPPINGS:
        if isinstance(error, kind):
            return ApiError(
                mapping.status, str(error), param=getattr(error, "param", None), code=mapping.code
            )
    return ApiError(500, "an internal error; the server's log has more about it", code="internal_error")


def install_handlers(app: FastAPI) -> None:
    """Answer every exception in the one shape."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_error)
    for kind in (ApiError, ClientDisconnectedError, *(kind for kind, _ in _MAPPINGS)):
        app.add_exception_handler(kind, _on_error)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ClientDisconnectedError):
        return JSONResponse(None, 499)  # nobody reads it
    told = as_api_error(error)
    if told.status == 500:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return told.response()


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        return await _on_error(request, error)
    status = error.status_code
    hint = _STATUS_HINTS.get(status)
    path = shown(request.url.path)
    message = str(error.detail) if hint is None else hint.format(path=path, method=request.method)
    return ApiError(
        status, message, code=http.HTTPStatus(status).name.lower(), headers=error.headers
    ).response()


async def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    return validation_error(problems).response()


def validation_error(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of pydantic's complaints, with the field, what was got and what is allowed."""
    if not problems:
        return ApiError(400, "the request is not valid", code="invalid_request")
    problem = problems[0]
    if problem["type"] == "json_invalid":
        detail = problem.get("ctx", {}).get("error", "")
        return ApiError(400, f"the body is not valid JSON: {detail}", code="invalid_json")
    place = [part for part in problem["loc"] if part not in ("body", "query", "path")]
    param = _field_path(place) or None
    if problem["type"] == "missing":
        what = param or "a JSON object"
        return ApiError(400, f"{what} is missing", param=param, code="missing_required_parameter")
    message = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
    return ApiError(
        400,
        f"{param or 'the body'}: {message}, got {shown(problem['input'])}",
        param=param,
        code="invalid_type",
    )


def _field_path(place: Sequence[object]) -> str:
    """``("messages", 0, "role")`` as ``messages[0].role``; names of branches of unions are left out."""
    path = ""
    for part in place:
        if isinstance(part, int):
            path += f"[{part}]"
        elif str(part).isidentifier() and part not in _SCALARS:
            path += f".{part}" if path else str(part)
    return path
