"""``/v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``: LoRA adapters while the server runs."""

from fastapi import APIRouter, Request

from octavo.lora_request import LoRARequest
from octavo.server.errors import ApiError
from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.lora import LoadLoRAAdapter, LoRAAdapters, UnloadLoRAAdapter
from octavo.server.state import state_of

router = APIRouter(
    tags=["adapters"], responses={"4XX": {"model": ErrorResponse}, "5XX": {"model": ErrorResponse}}
)


@router.post("/v1/load_lora_adapter")
async def load_lora_adapter(body: LoadLoRAAdapter, request: Request) -> LoRAAdapters:
    """Load an adapter from the server's disk; running requests go on."""
    state = state_of(request)
    if not state.config.lora_endpoints:
        raise _closed()
    if body.lora_name in state.model.names:
        raise ApiError(400, f"{body.lora_name!r} is the model's own name; choose another", param="lora_name")
    if not body.lora_path:
        raise ApiError(400, "lora_path is empty; name a PEFT folder or a GGUF file", param="lora_path")
    await state.engine.add_lora(LoRARequest(body.lora_name, lora_path=body.lora_path))
    return LoRAAdapters(loaded=list(state.engine.loras))


@router.post("/v1/unload_lora_adapter")
async def unload_lora_adapter(body: UnloadLoRAAdapter, request: Request) -> LoRAAdapters:
    """Unload an adapter that no running request uses."""
    state = state_of(request)
    if not state.config.lora_endpoints:
        raise _closed()
    await state.engine.remove_lora(body.lora_name)
    return LoRAAdapters(loaded=list(state.engine.loras))


def _closed() -> ApiError:
    return ApiError(
        403,
        "adapters cannot be loaded and unloaded over HTTP; start the server with --lora-endpoints",
        code="not_enabled",
    )
