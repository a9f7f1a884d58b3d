"""`create_app`: the ASGI application. The engine is made and ended elsewhere."""

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.tokenizer import Tokenizer
from octavo.server import chat, completions, embeddings, lora, models, operation, tokens
from octavo.server.auth import AuthMiddleware, KeyRing
from octavo.server.config import ServerConfig
from octavo.server.errors import install_handlers
from octavo.server.http_counts import HttpCounts
from octavo.server.limits import BodyMiddleware
from octavo.server.observation import REQUEST_ID_HEADER, ObservationMiddleware
from octavo.server.overload import OverloadMiddleware
from octavo.server.state import ServedModel, ServerState
from octavo.server.telemetry import ServerTelemetry
from octavo.server.unknown_fields import WARNING_HEADER
from octavo.version import octavo_version


def create_app(
    engine: AsyncEngine,
    tokenizer: Tokenizer,
    *,
    model: ServedModel,
    config: ServerConfig,
    telemetry: ServerTelemetry,
    max_open_requests: int | None = None,
) -> FastAPI:
    """Everything that is answered over HTTP.

    Args:
        engine: which answers; ready, or soon to be.
        tokenizer: the engine's.
        model: what clients are told about it.
        config: of the server.
        telemetry: of the server.
        max_open_requests: as many as can run and wait in the engine; ``None`` leaves refusing to it.
    """
    app = FastAPI(
        title="Octavo",
        version=octavo_version(),
        middleware=_middleware(config, telemetry.http, max_open_requests),
        redoc_url=None,
        strict_content_type=False,  # BodyMiddleware checks it, with an error of its own
    )
    app.state.octavo = ServerState(
        engine=engine, tokenizer=tokenizer, model=model, config=config, telemetry=telemetry
    )
    install_handlers(app)
    for part in (chat, completions, embeddings, models, lora, tokens, operation):
        app.include_router(part.router)
    return app


def _middleware(config: ServerConfig, counts: HttpCounts, max_open_requests: int | None) -> list[Middleware]:
    """The first one is the outermost."""
    secret = config.cache_salt_secret
    keys = KeyRing(config.api_key, None if secret is None else secret.encode())
    observed = Middleware(ObservationMiddleware, counts=counts)
    inner = [Middleware(AuthMiddleware, keys=keys)]
    if max_open_requests is not None:
        inner.append(Middleware(OverloadMiddleware, max_open_requests=max_open_requests))
    inner.append(Middleware(BodyMiddleware, max_bytes=config.max_body_bytes))
    if not config.cors_origin:
        return [observed, *inner]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=config.cors_origin,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=[REQUEST_ID_HEADER, WARNING_HEADER, "Retry-After"],
    )
    return [observed, cors, *inner]
