"""`GrammarCompiler`: readies the shape that a text must have. What implements it lives in `octavo.runner`."""

from concurrent.futures import Future
from typing import Any, Protocol

from octavo.structured_outputs import StructuredOutputsParams


class GrammarCompiler(Protocol):
    """Compiles constraints beside the engine's steps."""

    def compile(self, params: StructuredOutputsParams) -> "Future[Any]":
        """Begin to compile, if that was not done before; returns at once.

        The future ends with `RequestError` if the constraint is at fault.
        """
        ...

    def close(self) -> None:
        """Compile nothing more; calling it again does nothing."""
        ...
