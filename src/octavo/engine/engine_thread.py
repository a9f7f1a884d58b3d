"""`EngineThread`: the thread that owns an `Engine`, and the only place where threads meet.

Other threads leave commands in an inbox; the engine's thread runs them between steps. One lock guards
the state, the inbox and the set of open streams, and is never held during a step. A stream is opened
under that lock only while the state allows it, and the end of the engine ends all open streams under
the same lock, so nobody can be left waiting.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from octavo.engine.abort_cause import AbortCause
from octavo.engine.engine import Engine
from octavo.engine.lifecycle import EngineState
from octavo.engine.output_stream import OutputStream, put_all
from octavo.engine.telemetry import EngineTelemetry
from octavo.errors import DrainingError, EngineDeadError, EngineError, InvariantError
from octavo.outputs import RequestOutput

logger = logging.getLogger(__name__)

Command = Callable[[Engine], None]
T = TypeVar("T")


class EngineThread:
    """Runs an engine: commands, a step, commands, a step; and sleeps while there is nothing to do.

    Args:
        build: makes the engine, in this thread.
    """

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._engine: Engine | None = None
        self._changed = threading.Condition()
        self._state = EngineState.STARTING
        self._inbox: list[Command] = []
        self._open_streams: set[OutputStream] = set()
        self._calls: set[Future[Any]] = set()
        self._deadline = 0.0
        self._ready: Future[None] = Future()
        self._stopped: Future[None] = Future()
        self._cause_of_death: BaseException | None = None
        self._streams_by_request: dict[str, OutputStream] = {}  # only for the engine's thread
        # A daemon: a step that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)

    # ── from any thread ──

    @property
    def state(self) -> EngineState:
        """Where the engine is in its life."""
        return self._state

    @property
    def engine(self) -> Engine:
        """The engine, once it is built. Other threads may use only what never changes, as its tokenizer.

        Raises:
            EngineDeadError: there is none.
        """
        if self._engine is None:
            raise self._dead_error()
        return self._engine

    @property
    def telemetry(self) -> EngineTelemetry | None:
        """What the engine publishes, once it is built."""
        return None if self._engine is None else self._engine.telemetry

    @property
    def cause_of_death(self) -> BaseException | None:
        """What killed the engine."""
        return self._cause_of_death

    @property
    def num_open_streams(self) -> int:
        """Streams somebody still reads."""
        return len(self._open_streams)

    def start(self) -> None:
        """Start to build the engine; once it is started, calling this again does nothing.

        Raises:
            EngineDeadError: it has stopped for good.
        """
        with self._changed:
            self._check_alive()
            if self._thread.ident is None:
                self._thread.start()

    async def wait_until_ready(self) -> None:
        """Wait until the engine is built.

        Raises:
            EngineError: nobody has started it.
            EngineDeadError: it could not be built, or has died since.
        """
        self._check_started()
        await asyncio.shield(asyncio.wrap_future(self._ready))
        if self._state is EngineState.DEAD:
            raise self._dead_error()

    async def wait_until_stopped(self) -> None:
        """Wait for the end of the engine, whatever ends it."""
        await asyncio.shield(asyncio.wrap_future(self._stopped))

    def open_stream(self, stream: OutputStream, add: Command) -> None:
        """Send a request on its way; what becomes of it arrives in the stream.

        Raises:
            DrainingError: the engine is shutting down.
            EngineDeadError: it has stopped.
        """
        with self._changed:
            if self._state is EngineState.DRAINING:
                raise DrainingError("the engine is shutting down and takes no new requests")
            self._check_alive()
            self._open_streams.add(stream)
            self._post(lambda engine: self._add(engine, stream, add))

    def close_stream(self, stream: OutputStream) -> None:
        """Nobody reads the stream any more: its request is aborted, if it is still under way."""
        with self._changed:
            self._open_streams.discard(stream)
            self._post(lambda engine: self._abandon(engine, stream))

    def abort(self, request_id: str, cause: AbortCause) -> None:
        """End a request; its stream ends with what it had so far."""
        with self._changed:
            self._post(lambda engine: self._abort(engine, request_id, cause))

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Run a function in the engine's thread, between two steps.

        Raises:
            EngineError: nobody has started the engine.
            EngineDeadError: the engine stopped before it came to that.
        """
        self._check_started()
        future: Future[T] = Future()
        with self._changed:
            self._check_alive()
            self._post(lambda engine: self._answer(engine, future, function))
            self._calls.add(future)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        finally:
            with self._changed:
                self._calls.discard(future)

    def drain(self, deadline: float) -> None:
        """Take no new requests, finish those under way until ``deadline`` (`time.monotonic`), and stop."""
        with self._changed:
            if self._state.is_final:
                return
            self._deadline = deadline
            self._state = EngineState.DRAINING
            self._changed.notify_all()
        if self._thread.ident is None:  # never started
            self._end(EngineState.STOPPED, None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def give_up(self, message: str) -> EngineDeadError:
        """Declare an engine dead that does not answer; returns the error to raise."""
        error = EngineDeadError(message)
        self._end(EngineState.DEAD, error)
        return error

    # ── in the engine's thread ──

    def _run(self) -> None:
        try:
            self._engine = self._build()
            with self._changed:
                if self._state is EngineState.STARTING:
                    self._state = EngineState.READY
            self._ready.set_result(None)
            self._run_steps(self._engine)
            self._engine.close()
        except BaseException as error:  # whatever it is, nobody may be left waiting
            logger.critical("the engine has died", exc_info=error)
            self._end(EngineState.DEAD, error)
            self._release_runner()
        else:
            self._end(EngineState.STOPPED, None)

    def _release_runner(self) -> None:
        """Give back memory and threads of an engine that died: the process may live on and build another."""
        if self._engine is not None:
            # Whatever state it is in, the first error is the one to tell.
            with contextlib.suppress(Exception):
                self._engine.telemetry.engine_died()
            with contextlib.suppress(Exception):
                self._engine.release()

    def _run_steps(self, engine: Engine) -> None:
        while True:
            with self._changed:
                while self._is_idle(engine):
                    engine.telemetry.rest()
                    self._changed.wait(engine.patience_s)
                commands, self._inbox = self._inbox, []
                is_draining = self._state is not EngineState.READY
            engine.telemetry.wake()
            for command in commands:
                command(engine)
            if commands:
                engine.telemetry.publish()
            if is_draining:
                engine.resume()  # what a pause holds back would never finish
            if is_draining and (not engine.has_unfinished_requests or time.monotonic() >= self._deadline):
                self._deliver(engine.abort_all(AbortCause.SHUTDOWN))
                return
            if engine.has_work:
                self._deliver(engine.step())

    def _is_idle(self, engine: Engine) -> bool:
        if self._inbox or engine.has_work:
            return False
        if self._state is EngineState.READY:
            return True
        return engine.patience_s is not None and time.monotonic() < self._deadline

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        arrived = [(self._streams_by_request[output.request_id], output) for output in outputs]
        put_all(arrived)
        for stream, output in arrived:
            if output.finished:
                self._forget(stream)

    def _add(self, engine: Engine, stream: OutputStream, add: Command) -> None:
        try:
            add(engine)
        except InvariantError:
            raise
        except Exception as error:  # a request can fail, and then it fails alone
            stream.fail(error)
        else:
            self._streams_by_request[stream.request_id] = stream
            stream.is_under_way = True

    def _forget(self, stream: OutputStream) -> None:
        del self._streams_by_request[stream.request_id]
        stream.is_under_way = False

    def _abort(self, engine: Engine, request_id: str, cause: AbortCause) -> None:
        output = engine.abort(request_id, cause)
        if output is not None:
            self._deliver([output])

    def _abandon(self, engine: Engine, stream: OutputStream) -> None:
        # The id alone does not say whose request it is: it may have been used again since.
        if stream.is_under_way:
            self._forget(stream)
            engine.abort(stream.request_id, AbortCause.CLIENT_GONE)

    def _answer(self, engine: Engine, future: Future[T], function: Callable[[Engine], T]) -> None:
        try:
            future.set_result(function(engine))
        except InvariantError:
            raise
        except Exception as error:
            future.set_exception(error)

    def _check_started(self) -> None:
        if self._thread.ident is None and not self._state.is_final:
            raise EngineError("the engine was not started; call start() first, or use it in `async with`")

    # ── under the lock ──

    def _post(self, command: Command) -> None:
        if not self._state.is_final:
            self._inbox.append(command)
            self._changed.notify_all()

    def _check_alive(self) -> None:
        if self._state.is_final:
            raise self._dead_error()

    def _dead_error(self) -> EngineDeadError:
        if self._cause_of_death is None:
            return EngineDeadError("the engine has stopped")
        cause = str(self._cause_of_death) or type(self._cause_of_death).__name__
        error = EngineDeadError(f"the engine is dead: {cause}")
        error.__cause__ = self._cause_of_death
        return error

    def _end(self, state: EngineState, cause: BaseException | None) -> None:
        """The last change of state. Everyone who waits is told."""
        with self._changed:
            if self._state.is_final:
                return
            self._state, self._cause_of_death = state, cause
            streams, calls = self._open_streams, self._calls
            self._open_streams, self._calls, self._inbox = set(), set(), []
        for stream in streams:
            stream.fail(self._dead_error())
        for future in (*calls, self._ready):
            if not future.done():
                future.set_exception(self._dead_error())
        self._stopped.set_result(None)
