"""`InterruptFlag`: Ctrl-C as a flag to look at between steps, because half a step is a broken engine."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class InterruptFlag:
    """While it is entered, the first Ctrl-C only sets the flag; the second one raises at once.

    Where Ctrl-C does not raise ``KeyboardInterrupt`` anyway (another thread, a handler of the
    application's own) nothing is changed.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._is_installed = False

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._is_installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def raise_if_set(self) -> None:
        """Raise the ``KeyboardInterrupt`` that was held back."""
        if self.is_set:
            raise KeyboardInterrupt

    def _handle(self, signal_number: int, frame: FrameType | None) -> None:
        if self.is_set:
            signal.default_int_handler(signal_number, frame)
        self.is_set = True
