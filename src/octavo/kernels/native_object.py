"""`NativeHandle` and `NativeObject`: who owns what the native library made, and who may call into it when."""

import os
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType

from octavo.errors import EngineError
from octavo.kernels.native_library import NativeLibrary


class NativeHandle:
    """One object of the native library, which is destroyed when the last reference to this is gone.

    Args:
        kind: ``pool``, ``kv`` or ``program``; it is made by ``octavo_<kind>_create``.
        arguments: what that function takes in front of the new handle.
        uses: what the object needs as long as it lives; let go only after the object is destroyed.

    Attributes:
        address: what the library's functions take.

    Raises:
        ConfigError: a number does not fit the library's types.
        EngineError: the library refuses.
    """

    def __init__(
        self, library: NativeLibrary, kind: str, *arguments: object, uses: Sequence[object] = ()
    ) -> None:
        self.address = library.create(f"octavo_{kind}_create", *arguments)
        finalizer = weakref.finalize(
            self, _destroy, library, f"octavo_{kind}_destroy", self.address, os.getpid(), uses
        )
        finalizer.atexit = False  # a daemon thread may be inside, and the system takes everything anyway


def _destroy(
    library: NativeLibrary, function: str, address: int, process_id: int, _uses: Sequence[object]
) -> None:
    """Destroy an object; that ``_uses`` is an argument is what kept it alive so far."""
    # A fork's child has the memory of a pool but not its threads, for which this would wait for ever.
    if os.getpid() == process_id:
        library.get(function, address)


class NativeObject:
    """Lets one call at a time use a handle: none after `close`, none in a fork's child.

    The handle is what a ``with`` block gets, for one call; meanwhile other threads wait, `close` among them.
    Threads of a pool serve one call at a time, so everything that runs on them shares the pool's lock.

    Args:
        handle: owned by this until `close`.
        name: what to call it in messages.
        lock: held during every call; reentrant, because a signal handler may close what it interrupts.
    """

    def __init__(self, handle: NativeHandle, name: str, lock: threading.RLock) -> None:
        self.lock = lock
        self._handle: NativeHandle | None = handle
        self._in_calls: list[NativeHandle] = []  # so that nothing is destroyed under a call
        self._name = name
        self._process_id = os.getpid()

    def __enter__(self) -> NativeHandle:
        """Begin a call.

        Raises:
            EngineError: it was closed, or belongs to the parent process.
        """
        if os.getpid() != self._process_id:
            raise EngineError(
                f"the {self._name} of process {self._process_id} cannot be used in its fork {os.getpid()}: "
                "threads do not survive fork(); load the model in the child, or start that with method spawn"
            )
        self.lock.acquire()
        if self._handle is None:
            self.lock.release()
            raise EngineError(f"the {self._name} is closed")
        self._in_calls.append(self._handle)
        return self._handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_calls.pop()
        self.lock.release()

    def close(self) -> None:
        """Give the object back when the call under way is over; calling it again does nothing.

        It is destroyed as soon as no call, no other object and no array needs it. In a fork's child nothing
        happens: the object is the parent's, and so may be whoever holds the lock.
        """
        if os.getpid() == self._process_id:
            with self.lock:
                self._handle = None
