"""What `octavo serve` does once its options are read."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fastapi import FastAPI

from octavo.build import Built, hash_root
from octavo.cli.session import start_engine
from octavo.cli.terminal import stderr_console
from octavo.config import EngineConfig
from octavo.diagnostics import best_effort_stderr
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import create_app
from octavo.server.config import ServerConfig
from octavo.server.lifecycle import bind, serve
from octavo.server.log_format import set_up_logging
from octavo.server.metrics import ServedEngine
from octavo.server.state import ServedModel
from octavo.server.systemd import ServiceManager
from octavo.server.telemetry import ServerTelemetry, make_request_log
from octavo.version import octavo_version


def run_server(config: EngineConfig, server: ServerConfig, *, quiet: bool) -> None:
    """Load the model and serve it until a signal comes.

    Raises:
        ConfigError: the configuration fits neither the model nor the machine, or the address is taken.
        ModelLoadError: the model cannot be found, read or fetched.
        EngineDeadError: the engine died while it served.
    """
    set_up_logging(server.log_format, best_effort_stderr())
    server = with_environment_keys(server, os.environ.get("OCTAVO_API_KEYS", ""))
    listener = bind(server.host, server.port)
    built = start_engine(config, quiet=quiet)
    model = served_model(built, server.served_model_name or (default_name(config.model.model),))
    served = served_engine(built, model.name)
    with make_request_log(server, served) as request_log:
        engine = AsyncEngine(lambda: built.engine, stall_s=server.stall_timeout, on_finished=request_log.put)
        telemetry = ServerTelemetry(engine, served, request_log)
        scheduler = built.config.scheduler
        app = create_app(
            engine,
            built.model.tokenizer,
            model=model,
            config=server,
            telemetry=telemetry,
            max_open_requests=scheduler.max_num_seqs + scheduler.max_waiting_requests,
        )
        asyncio.run(_serve(engine, app, listener, on_ready=lambda: _announce(model, listener)))


async def _serve(
    engine: AsyncEngine, app: FastAPI, listener: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    async with engine:
        await serve(app, listener, on_ready=on_ready, manager=ServiceManager(os.environ))


def served_engine(built: Built, model_name: str) -> ServedEngine:
    """What metrics and traces say of the engine."""
    config = built.config
    return ServedEngine(
        model_name=model_name,
        version=octavo_version(),
        kernels=config.kernels,
        isa=config.isa,
        num_threads=config.num_threads,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        kv_dtype=config.kv_dtype,
        enable_prefix_caching=config.enable_prefix_caching,
    )


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
        default_sampling_params=built.default_sampling_params,
    )


def _announce(model: ServedModel, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown_host = f"[{host}]" if ":" in host else host
    stderr_console().print(
        f"octavo {octavo_version()} serves {model.name} at http://{shown_host}:{port}/v1 (docs: /docs)",
        markup=False,
        soft_wrap=True,
    )
