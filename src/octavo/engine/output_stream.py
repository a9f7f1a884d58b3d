"""`OutputStream`: carries one request's outputs from the engine's thread to a coroutine."""

import asyncio
import contextlib
from collections.abc import Iterable

from octavo.engine.deltas import join_deltas
from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind


class OutputStream:
    """Holds what was put in until it is taken.

    An output holds the whole text so far, so a slow reader skips some and loses nothing, and however
    slow it is, one output is all that waits for it. Outputs that hold only what is new wait until they are
    taken, and are then joined into one. Created in, and read from, one event loop; `put` and `fail` may be
    called from any thread, and change the stream only inside that loop.

    Args:
        output_kind: what the outputs hold.

    Attributes:
        request_id: whose outputs these are.
        loop: the event loop it belongs to.
        is_under_way: whether the engine works on the request; only the engine's thread uses it.
    """

    def __init__(
        self, request_id: str, output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    ) -> None:
        self.request_id = request_id
        self.is_under_way = False
        self.loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._is_delta = output_kind is RequestOutputKind.DELTA
        self._waiting: list[RequestOutput] = []
        self._error: Exception | None = None

    def put(self, output: RequestOutput) -> None:
        """Add the next output."""
        self._post(output, None)

    def fail(self, error: Exception) -> None:
        """End the stream with an error; an output that came before is still delivered."""
        self._post(None, error)

    async def next(self) -> RequestOutput:
        """Wait for something newer than the last output taken.

        Raises:
            OctavoError: the request was refused, or the engine died; nothing follows.
        """
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        outputs, self._waiting = self._waiting, []
        return join_deltas(outputs)

    def _post(self, output: RequestOutput | None, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear
            self.loop.call_soon_threadsafe(self.receive, output, error)

    def receive(self, output: RequestOutput | None, error: Exception | None = None) -> None:
        """`put` and `fail` for somebody who is in the stream's event loop; a refusal is an error."""
        if output is not None and output.refusal is not None:
            error = output.refusal
        elif output is not None:
            if not self._is_delta:
                self._waiting.clear()
            self._waiting.append(output)
        self._error = error or self._error
        self._arrived.set()


def put_all(arrived: Iterable[tuple[OutputStream, RequestOutput]]) -> None:
    """Add the outputs of one step to their streams, from any thread.

    An event loop is woken once for all of its streams: to wake it for each would cost a system call and a
    switch of threads per token.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[OutputStream, RequestOutput]]] = {}
    for stream, output in arrived:
        by_loop.setdefault(stream.loop, []).append((stream, output))
    for loop, pairs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear
            loop.call_soon_threadsafe(_receive_all, pairs)


def _receive_all(pairs: Iterable[tuple[OutputStream, RequestOutput]]) -> None:
    for stream, output in pairs:
        stream.receive(output)
