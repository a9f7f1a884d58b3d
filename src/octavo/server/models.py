"""``/v1/models``."""

from pathlib import PurePath

from fastapi import APIRouter, Request

from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.model import ModelCard, ModelList
from octavo.server.state import ServerState, state_of

router = APIRouter(tags=["models"], responses={"4XX": {"model": ErrorResponse}})


@router.get("/v1/models")
async def list_models(request: Request) -> ModelList:
    """What can be asked for as ``model``: the model, and its LoRA adapters."""
    state = state_of(request)
    return ModelList(data=[_card(state, name) for name in (*state.model.names, *state.engine.loras)])


@router.get("/v1/models/{name:path}")
async def get_model(name: str, request: Request) -> ModelCard:
    """One of them."""
    state = state_of(request)
    state.model.adapter(name, state.engine.loras)
    return _card(state, name)


def _card(state: ServerState, name: str) -> ModelCard:
    model, adapter = state.model, state.engine.loras.get(name)
    card = ModelCard(id=name, created=model.created, root=model.root, max_model_len=model.max_model_len)
    if name in model.names or adapter is None:
        return card
    return card.model_copy(update={"root": PurePath(adapter.path).name, "parent": model.name})
