"""`InterruptFlag`: Ctrl-C as a flag to look at between steps, because half a step is a broken engine."""

import signal
import threading
from types import TracebackType
from typing import Self


class InterruptFlag:
    """While it is entered, Ctrl-C only sets the flag, however often it is pressed; nothing is cut in half.

    It is raised by `raise_if_set`, or on leaving if nobody asked. A step that never ends is ended by SIGQUIT
    (Ctrl-backslash) or SIGTERM.

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
            self._is_installed = False
        if error is None:
            self.raise_if_set()

    def raise_if_set(self) -> None:
        """Raise the ``KeyboardInterrupt`` that was held back."""
        if self.is_set:
            raise KeyboardInterrupt

    def _handle(self, *_: object) -> None:
        self.is_set = True
