"""API keys: who is asking, and the cache salt that keeps one key's prefixes from another's."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError

OPEN_PATHS = frozenset({"/health", "/ready", "/version", "/metrics", "/docs", "/openapi.json"})
"""What needs no key: probes, scrapers and the documentation hold no tenant's content."""
SALT_LENGTH = 32


class Tenant(NamedTuple):
    """Whoever sends requests with one API key."""

    name: str
    """Tells tenants apart in queues without saying their keys; empty if there is only one."""
    salt: str | None
    """Prefix of the cache salt of all its requests; ``None`` if everybody shares."""

    def cache_salt(self, requested: str | None) -> str | None:
        """The salt of a request that may have asked for one itself.

        The tenant's part has a fixed length, so no request can name another tenant's salt.
        """
        if self.salt is None or requested == "":  # an empty one is refused by the engine
            return requested
        return self.salt if requested is None else f"{self.salt}/{requested}"


ANYBODY = Tenant("", None)


class KeyRing:
    """The valid API keys.

    Args:
        keys: none if the server is open to everybody.
        secret: salts are derived from it, so that nobody can compute them from a key.
    """

    def __init__(self, keys: Sequence[str], secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)
        self._tenants = [(self._digest(b"key", key), self._tenant(key)) for key in dict.fromkeys(keys)]

    def tenant(self, authorization: str | None) -> Tenant | None:
        """Who sends this ``Authorization`` header; ``None`` if nobody may who sends it.

        All keys are compared, as digests, whatever they are: the time says nothing about them.
        """
        if not self._tenants:
            return ANYBODY
        scheme, _, key = (authorization or "").partition(" ")
        given = self._digest(b"key", key.strip())
        found = None
        for digest, tenant in self._tenants:
            if hmac.compare_digest(digest, given):
                found = tenant
        return found if scheme.lower() == "bearer" else None

    def _tenant(self, key: str) -> Tenant:
        name = self._digest(b"name", key).hex()[:12]
        return Tenant(f"key-{name}", self._digest(b"salt", key).hex()[:SALT_LENGTH])

    def _digest(self, purpose: bytes, key: str) -> bytes:
        return hmac.digest(self._secret, purpose + b"\0" + key.encode("utf-8", "replace"), hashlib.sha256)


class AuthMiddleware:
    """Refuses requests without a valid key before anything of them is read."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tenant = self._keys.tenant(Headers(scope=scope).get("authorization"))
        if tenant is None and scope["path"] not in OPEN_PATHS:
            await _refusal().response()(scope, receive, send)
            return
        scope.setdefault("state", {})["tenant"] = tenant or ANYBODY
        await self._app(scope, receive, send)


def _refusal() -> ApiError:
    return ApiError(
        401,
        "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )
