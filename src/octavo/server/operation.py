"""What operators and their probes ask: ``/health``, ``/ready``, ``/metrics``, ``/version``, the cache."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from octavo.engine.lifecycle import EngineState
from octavo.server.errors import ApiError
from octavo.server.metrics import render
from octavo.server.protocol.error import ErrorResponse
from octavo.server.state import state_of
from octavo.version import octavo_version

router = APIRouter(
    tags=["operation"], responses={"4XX": {"model": ErrorResponse}, "5XX": {"model": ErrorResponse}}
)


@router.get("/health")
async def health(request: Request) -> Response:
    """200 while the engine lives, also while it drains; otherwise the process should be restarted.

    ``stall`` says why work makes no progress, while it makes none.
    """
    engine = state_of(request).engine
    state, stall = engine.state, engine.stall
    if state.is_final:
        raise ApiError(503, f"the engine is {state}", code="engine_dead")
    return JSONResponse({"status": str(state), "stall": None if stall is None else stall._asdict()})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Everything that is counted, in Prometheus' format."""
    registry = state_of(request).telemetry.registry
    body, media_type = render(registry, request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": media_type})


@router.get("/ready")
async def ready(request: Request) -> Response:
    """200 while new requests are taken."""
    state = state_of(request).engine.state
    if state is not EngineState.READY:
        raise ApiError(503, f"the engine is {state}", code="not_ready")
    return JSONResponse({"status": str(state)})


@router.get("/version")
async def version() -> dict[str, str]:
    """The version of Octavo."""
    return {"version": octavo_version()}


@router.post("/reset_prefix_cache")
async def reset_prefix_cache(
    request: Request, reset_running_requests: Annotated[bool, Query()] = False
) -> dict[str, bool]:
    """Forget all cached prefixes; running requests are in the way unless they may be computed anew.

    Not where there are several API keys: no tenant may take the cache from the others.
    """
    state = state_of(request)
    if len(set(state.config.api_key)) > 1:
        raise ApiError(
            403,
            "the cache belongs to several API keys, and none may clear it for the others; restart "
            "the server, or use a cache_salt of your own",
            code="not_enabled",
        )
    engine = state.engine
    if not await engine.reset_prefix_cache(reset_running_requests=reset_running_requests):
        raise ApiError(
            409,
            "blocks of the cache are in use; wait, or add ?reset_running_requests=true, and running requests "
            "are computed anew",
            code="cache_in_use",
        )
    return {"reset": True}
