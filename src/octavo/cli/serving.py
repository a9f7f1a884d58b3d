"""What `octavo serve` does once its options are read."""

import asyncio
import logging
import os
import socket
from dataclasses import replace
from pathlib import Path

from octavo.build import Built, hash_root
from octavo.cli.session import start_engine
from octavo.cli.terminal import stderr_console
from octavo.config import EngineConfig
from octavo.diagnostics import best_effort_stderr
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import create_app
from octavo.server.config import ServerConfig
from octavo.server.lifecycle import bind, serve
from octavo.server.state import ServedModel
from octavo.version import octavo_version


def run_server(config: EngineConfig, server: ServerConfig, *, quiet: bool) -> None:
    """Load the model and serve it until a signal comes.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine, or the address is taken.
        ModelLoadError: the model cannot be found, read or fetched.
        EngineDeadError: the engine died while it served.
    """
    logging.basicConfig(
        stream=best_effort_stderr(),
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    server = with_environment_keys(server, os.environ.get("OCTAVO_API_KEYS", ""))
    listener = bind(server.host, server.port)
    built = start_engine(config, quiet=quiet)
    model = served_model(built, server.served_model_name or (default_name(config.model.model),))
    asyncio.run(_serve(built, listener, model, server))


async def _serve(built: Built, listener: socket.socket, model: ServedModel, server: ServerConfig) -> None:
    async with AsyncEngine(lambda: built.engine) as engine:
        app = create_app(engine, built.model.tokenizer, model=model, config=server)
        await serve(app, listener, on_ready=lambda: _announce(model, listener))


def with_environment_keys(server: ServerConfig, keys: str) -> ServerConfig:
    """The configuration, with the keys of the environment beside its own."""
    added = tuple(key.strip() for key in keys.split(",") if key.strip())
    return replace(server, api_key=(*server.api_key, *added))


def default_name(model: str) -> str:
    """What clients call a model: its short name, or its file's without the suffix."""
    return Path(model).name.removesuffix(".gguf")


def served_model(built: Built, names: tuple[str, ...]) -> ServedModel:
    """The model as clients see it."""
    return ServedModel(
        names=names,
        root=built.model.path.name,
        max_model_len=built.engine.max_num_tokens,
        fingerprint=hash_root(built.config, built.model).hex()[:16],
    )


def _announce(model: ServedModel, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown_host = f"[{host}]" if ":" in host else host
    stderr_console().print(
        f"octavo {octavo_version()} serves {model.name} at http://{shown_host}:{port}/v1 (docs: /docs)",
        markup=False,
        soft_wrap=True,
    )
