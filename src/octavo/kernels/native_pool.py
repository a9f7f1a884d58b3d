"""`NativePool`: the threads that native kernels run on."""

from octavo.kernels.native_library import NativeLibrary


class NativePool:
    """``num_threads`` threads, the caller's among them; the others sleep between calls.

    Raises:
        EngineError: the number is not 1 … 1,024, or the system has no such number of threads.
    """

    def __init__(self, num_threads: int, *, library: NativeLibrary) -> None:
        self.num_threads = num_threads
        self._library = library
        self.handle: int | None = library.create("octavo_pool_create", num_threads)

    def close(self) -> None:
        """End the threads; calling it again does nothing."""
        if self.handle:
            self._library.get("octavo_pool_destroy", self.handle)
            self.handle = None
