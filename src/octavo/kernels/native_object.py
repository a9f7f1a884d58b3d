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

    Threads of a pool serve one call at a time, so everything that runs on them shares the pool's lock.

    Args:
        handle: owned by this until `close`.
        name: what to call it in messages.
        lock: held during every call; reentrant, because a signal handler may close what it interrupts.
    """

    def __init__(self, handle: NativeHandle, name: str, lock: threading.RLock) -> None:
        self.lock = lock
        self._handle: NativeHandle | None = handle
        self._name = name
        self._process_id = os.getpid()

    def opened(self) -> "_Call":
        """The handle, for the one call in the ``with`` block; other threads wait, `close` among them.

        Raises:
            EngineError: it belongs to the parent process; on entering: it was closed.
        """
        self._check_process()
        return _Call(self)  # no generator: that costs several times as much, in every step

    def get_handle(self) -> NativeHandle:
        """The handle, for whoever holds the lock.

        Raises:
            EngineError: it was closed.
        """
        if self._handle is None:
            raise EngineError(f"the {self._name} is closed")
        return self._handle

    def close(self) -> None:
        """Give the object back when the call under way is over; calling it again does nothing.

        It is destroyed as soon as no other object and no array needs it. In a fork's child nothing happens:
        the object is the parent's, and so may be whoever holds the lock.
        """
        if os.getpid() == self._process_id:
            with self.lock:
                self._handle = None

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise EngineError(
                f"the {self._name} of process {self._process_id} cannot be used in its fork {os.getpid()}: "
                "threads do not survive fork(); load the model in the child, or start that with method spawn"
            )


class _Call:
    """Holds an object's lock, and a reference so that nothing is destroyed under the call."""

    __slots__ = ("_handle", "_object")

    def __init__(self, native_object: NativeObject) -> None:
        self._object = native_object
        self._handle: NativeHandle | None = None

    def __enter__(self) -> NativeHandle:
        self._object.lock.acquire()
        try:
            self._handle = self._object.get_handle()
        except BaseException:
            self._object.lock.release()
            raise
        return self._handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._object.lock.release()
        self._handle = None
