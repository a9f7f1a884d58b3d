"""`OutputStream`: carries one request's outputs from the engine's thread to a coroutine."""

import asyncio
import contextlib

from octavo.outputs import RequestOutput


class OutputStream:
    """Holds the newest output until it is taken.

    An output holds the whole text so far, so a slow reader skips some and loses nothing, and however
    slow it is, one output is all that waits for it. Created in, and read from, one event loop; `put` and
    `fail` may be called from any thread, and change the stream only inside that loop.

    Attributes:
        request_id: whose outputs these are.
        is_under_way: whether the engine works on the request; only the engine's thread uses it.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.is_under_way = False
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._latest: RequestOutput | None = None
        self._error: Exception | None = None

    def put(self, output: RequestOutput) -> None:
        """Make ``output`` the newest one."""
        self._post(output, None)

    def fail(self, error: Exception) -> None:
        """End the stream with an error; an output that came before is still delivered."""
        self._post(None, error)

    async def next(self) -> RequestOutput:
        """Wait for an output newer than the last one taken.

        Raises:
            OctavoError: the request was refused, or the engine died; nothing follows.
        """
        while self._latest is None:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        output, self._latest = self._latest, None
        return output

    def _post(self, output: RequestOutput | None, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear
            self._loop.call_soon_threadsafe(self._receive, output, error)

    def _receive(self, output: RequestOutput | None, error: Exception | None) -> None:
        self._latest = output or self._latest
        self._error = error or self._error
        self._arrived.set()
