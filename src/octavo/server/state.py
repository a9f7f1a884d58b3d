"""`ServerState`: what every handler works with."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from fastapi import Request

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.text_limit import TextLimit
from octavo.engine.tokenizer import Tokenizer
from octavo.sampling_params import SamplingParams
from octavo.server.auth import Tenant
from octavo.server.config import ServerConfig
from octavo.server.errors import ApiError
from octavo.server.telemetry import ServerTelemetry


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """The model as clients see it."""

    names: tuple[str, ...]
    """What it may be called, at least one; answers say the first."""
    root: str
    """The model file's name."""
    max_model_len: int
    """Longest sequence, prompt and output together [tokens]."""
    fingerprint: str
    """Equal only where equal requests give equal bits."""
    default_sampling_params: SamplingParams = field(default_factory=SamplingParams)
    """What a request has that says nothing else, its bound of tokens left out."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        """What answers call it."""
        return self.names[0]

    def adapter(self, name: str | None, adapters: Iterable[str] = ()) -> str | None:
        """The LoRA adapter that a request asks for as ``model``; ``None`` for the model as it is.

        Args:
            name: what it asks for, if anything.
            adapters: names of those that are loaded.

        Raises:
            ApiError: 404, with the names there are.
        """
        if name is None or name in self.names:
            return None
        if name not in (loaded := list(adapters)):
            raise ApiError(
                404,
                f"there is no model {name[:80]!r}; there is {', '.join([*self.names, *loaded])}",
                param="model",
                code="model_not_found",
            )
        return name


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """One per application."""

    engine: AsyncEngine
    tokenizer: Tokenizer
    model: ServedModel
    config: ServerConfig
    telemetry: ServerTelemetry

    @property
    def text_limit(self) -> TextLimit:
        """Of what is tokenized."""
        return TextLimit(self.model.max_model_len, self.tokenizer.max_token_length)


def state_of(request: Request) -> ServerState:
    """The application's state."""
    return cast("ServerState", request.app.state.octavo)


def tenant_of(request: Request) -> Tenant:
    """Who sends the request."""
    return cast("Tenant", request.state.tenant)
