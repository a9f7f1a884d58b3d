"""`merge`: the outputs of several prompts of one request, as they come."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(
    sources: Sequence[AsyncGenerator[T, None]], *, on_error: Callable[[], Awaitable[None]]
) -> AsyncGenerator[tuple[int, T], None]:
    """Every item of every source, with the index of its source.

    The first error ends them all, and so does closing this generator.

    Args:
        sources: to be read; closed in the end.
        on_error: called when one fails, before the others are closed.
    """
    if len(sources) == 1:  # most requests
        async with aclosing(sources[0]) as source:
            async for item in source:
                yield 0, item
        return
    arrived: asyncio.Queue[tuple[int, T] | _End] = asyncio.Queue(maxsize=len(sources))
    tasks = [asyncio.create_task(_pump(index, source, arrived)) for index, source in enumerate(sources)]
    try:
        num_open = len(tasks)
        while num_open:
            event = await arrived.get()
            if not isinstance(event, _End):
                yield event
            elif event.error is not None:
                await on_error()
                raise event.error
            else:
                num_open -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _End:
    """A source has no more, or failed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


async def _pump(
    index: int, source: AsyncGenerator[T, None], arrived: "asyncio.Queue[tuple[int, T] | _End]"
) -> None:
    end = _End()
    try:
        async with aclosing(source):
            async for item in source:
                await arrived.put((index, item))
    except Exception as error:
        end = _End(error)
    await arrived.put(end)
