"""`ChunkText`: chunks of a stream, written as text.

A chunk per token and stream is the server's hot path. All but a few characters of it are the same every time,
so they are encoded once; building a model and encoding that takes ten times as long.
"""

import json
from collections.abc import Mapping

from octavo.outputs import CompletionOutput
from octavo.server.protocol.request import StreamOptions
from octavo.server.usage import UsageCounter


class ChunkText:
    """Writes the chunks of one request.

    Args:
        head: fields that every chunk begins with.
        options: as the client sent them.
        usage: read whenever a chunk tells it.
    """

    def __init__(
        self, head: Mapping[str, object], options: StreamOptions | None, *, usage: UsageCounter
    ) -> None:
        encoded = json.dumps(head, separators=(",", ":"))
        self._head = f'data: {encoded[:-1]},"choices":['
        self._usage = usage
        self._includes_usage = usage.tells_receipts or (options is not None and options.include_usage)
        self._is_continuous = options is not None and options.continuous_usage_stats

    def chunk(self, index: int, content: str, choice: CompletionOutput | None = None) -> str:
        """One event with one choice.

        Args:
            index: of the choice.
            content: its fields, as JSON.
            choice: whose end is told, if it has come.
        """
        end = '"finish_reason":null' if choice is None or choice.finish_reason is None else _end(choice)
        return f'{self._head}{{"index":{index},{content},{end}}}]{self._tail()}'

    def last(self) -> str:
        """A chunk without choices and with the usage, if that was asked for."""
        if not self._includes_usage:
            return ""
        return f'{self._head}],"usage":{self._usage.usage().model_dump_json()}}}\n\n'

    def _tail(self) -> str:
        if self._is_continuous:
            return f',"usage":{self._usage.usage().model_dump_json()}}}\n\n'
        return ',"usage":null}\n\n' if self._includes_usage else "}\n\n"


def _end(choice: CompletionOutput) -> str:
    return (
        f'"finish_reason":{json.dumps(choice.finish_reason)},"stop_reason":{json.dumps(choice.stop_reason)},'
        f'"seed":{json.dumps(choice.seed)}'
    )
