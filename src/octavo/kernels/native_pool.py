"""`NativePool`: the threads that native kernels run on."""

import threading

from octavo.errors import ConfigError
from octavo.kernels.native_library import NativeLibrary
from octavo.kernels.native_object import NativeHandle, NativeObject

MAX_THREADS = 1024


class NativePool(NativeObject):
    """``num_threads`` threads, the caller's among them; the others sleep between calls.

    Raises:
        ConfigError: the number is not 1 … 1,024.
        EngineError: the system has no such number of threads.
    """

    def __init__(self, num_threads: int, *, library: NativeLibrary) -> None:
        if not 1 <= num_threads <= MAX_THREADS:
            raise ConfigError(f"num_threads must be between 1 and {MAX_THREADS}, got {num_threads}")
        super().__init__(NativeHandle(library, "pool", num_threads), "thread pool", threading.RLock())
        self.num_threads = num_threads
