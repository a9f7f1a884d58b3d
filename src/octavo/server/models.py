"""``/v1/models``."""

from fastapi import APIRouter, Request

from octavo.server.protocol.error import ErrorResponse
from octavo.server.protocol.model import ModelCard, ModelList
from octavo.server.state import ServedModel, state_of

router = APIRouter(tags=["models"], responses={"4XX": {"model": ErrorResponse}})


@router.get("/v1/models")
async def list_models(request: Request) -> ModelList:
    """What can be asked for as ``model``."""
    model = state_of(request).model
    return ModelList(data=[_card(model, name) for name in model.names])


@router.get("/v1/models/{name:path}")
async def get_model(name: str, request: Request) -> ModelCard:
    """One of them."""
    model = state_of(request).model
    model.check(name)
    return _card(model, name)


def _card(model: ServedModel, name: str) -> ModelCard:
    return ModelCard(id=name, created=model.created, root=model.root, max_model_len=model.max_model_len)
