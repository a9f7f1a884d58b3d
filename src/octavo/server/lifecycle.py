"""The server's life: it starts, it drains after a signal, and it does not outlive its engine."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import uvicorn
from fastapi import FastAPI

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.lifecycle import EngineState
from octavo.engine.watchdog import StallReason
from octavo.errors import ConfigError, EngineDeadError
from octavo.server.connection import Connection
from octavo.server.state import ServerState
from octavo.server.systemd import ALIVE, READY, STOPPING, ServiceManager

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""How long clients may take to read what is left once the engine has stopped."""
KEEP_ALIVE_S = 75.0
"""Longer than a proxy keeps idle connections, so that none is closed while it sends a request."""
_HARMLESS_STALLS = frozenset({StallReason.PAUSED, StallReason.HELD_BACK})
"""Those that a restart would not end."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, which would have the process ended by the signal."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[explicit-override,override]
        return nullcontext()


class _StopSignals:
    """Signals that ask for the end: the first one politely."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()

    def receive(self) -> None:
        """One more signal."""
        (self.insisted if self.asked.is_set() else self.asked).set()


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; it answers nothing before it is served.

    Raises:
        ConfigError: the address cannot be had.
    """
    listener = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason}; choose another --host or --port"
        ) from None
    return listener


async def serve(
    app: FastAPI, listener: socket.socket, *, on_ready: Callable[[], None], manager: ServiceManager
) -> None:
    """Answer requests until a signal comes or the engine ends.

    After SIGTERM or SIGINT new requests are refused, those under way have until the drain deadline; a second
    signal ends them at once.

    Args:
        app: made by `create_app`; its engine is started and ready.
        listener: bound, and closed at the end.
        on_ready: called when connections are accepted.
        manager: is told what happens.

    Raises:
        EngineDeadError: the engine died; every stream was ended with an error.
    """
    state: ServerState = app.state.octavo
    server = _HttpServer(uvicorn_config(app))
    listener.listen()  # at once, so that nobody who is told that it is ready is turned away
    with _stop_signals() as signals:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        ended = asyncio.create_task(state.engine.wait_until_stopped())
        asked = asyncio.create_task(signals.asked.wait())
        living = asyncio.create_task(_show_life(state.engine, manager))
        on_ready()
        manager.notify(READY)
        try:
            await asyncio.wait((serving, ended, asked), return_when=asyncio.FIRST_COMPLETED)
            manager.notify(STOPPING)
            if asked.done():
                await _drain(state.engine, state.config.drain_timeout, signals)
        finally:
            server.should_exit = True
            await serving
            for task in (ended, asked, living):
                task.cancel()
    if state.engine.state is EngineState.DEAD:
        raise EngineDeadError(f"the engine has died: {state.engine.cause_of_death!r}")


async def _drain(engine: AsyncEngine, timeout_s: float, signals: _StopSignals) -> None:
    logger.info(
        "draining: %d requests have %.0f s to finish, new ones are refused",
        engine.num_unfinished_requests,
        timeout_s,
    )
    draining = asyncio.create_task(engine.shutdown(drain_s=timeout_s))
    insisted = asyncio.create_task(signals.insisted.wait())
    await asyncio.wait((draining, insisted), return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        logger.info("a second signal: ending %d requests", engine.num_unfinished_requests)
        await engine.shutdown(drain_s=0.0)
    insisted.cancel()
    await draining


async def _show_life(engine: AsyncEngine, manager: ServiceManager) -> None:
    """Tell the manager that all is well, as often as it wants to hear it and as long as it is true."""
    interval_s = manager.watchdog_interval_s
    while interval_s is not None:
        if engine.stall is None or engine.stall.reason in _HARMLESS_STALLS:
            manager.notify(ALIVE)
        await asyncio.sleep(interval_s)


def uvicorn_config(app: FastAPI) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(KEEP_ALIVE_S),
        timeout_graceful_shutdown=int(CLOSE_TIMEOUT_S),
    )


@contextmanager
def _stop_signals() -> Iterator[_StopSignals]:
    loop = asyncio.get_running_loop()
    signals = _StopSignals()
    with contextlib.ExitStack() as stack:
        for number in SIGNALS:
            loop.add_signal_handler(number, signals.receive)
            stack.callback(loop.remove_signal_handler, number)
        yield signals
