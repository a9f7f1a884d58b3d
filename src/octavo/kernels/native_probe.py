"""`NativeProbe`: the native library's probes of the machine, on a pool of threads."""

import ctypes
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from octavo.kernels.native_library import NativeLibrary, address
from octavo.kernels.native_pool import NativePool

PROBE_BYTES = 2**20
"""What is read is a multiple of this."""


class _Kind(IntEnum):
    READ = 0
    FLOAT = 1
    INTEGER = 2
    ROUND_TRIP = 3
    READ_AHEAD = 4


class NativeProbe:
    """Loops that do nothing but read, or nothing but arithmetic, as fast as the instruction set allows."""

    def __init__(self, *, library: NativeLibrary, pool: NativePool, isa: str) -> None:
        self._library, self._pool = library, pool
        self._isa = isa.encode()

    def read(self, buffer: npt.NDArray[np.uint8], *, ahead: bool) -> None:
        """Read a buffer [a multiple of `PROBE_BYTES`] once, all threads together.

        ``ahead`` asks for lines a page before they are read: some processors read faster then, some slower.

        Raises:
            EngineError: the size is no such multiple.
        """
        self._call(_Kind.READ_AHEAD if ahead else _Kind.READ, buffer=buffer)

    def float_operations(self, repetitions: int) -> int:
        """Fused multiply-adds in registers; returns the operations done, over all threads."""
        return self._call(_Kind.FLOAT, repetitions=repetitions)

    def integer_operations(self, repetitions: int) -> int:
        """Products of bytes, summed, one operand from the first-level cache; as `float_operations`."""
        return self._call(_Kind.INTEGER, repetitions=repetitions)

    def round_trips(self, repetitions: int) -> int:
        """Two of the threads answer each other through a cache line; returns how often: 0 with one thread."""
        self._call(_Kind.ROUND_TRIP, repetitions=repetitions)
        return repetitions if self._pool.num_threads > 1 else 0

    def _call(self, kind: _Kind, *, buffer: npt.NDArray[np.uint8] | None = None, repetitions: int = 0) -> int:
        operations = ctypes.c_int64()
        with self._pool as pool:
            self._library.call(
                "octavo_probe",
                pool.address,
                self._isa,
                int(kind),
                0 if buffer is None else address(buffer),
                0 if buffer is None else buffer.nbytes,
                repetitions,
                ctypes.byref(operations),
            )
        return operations.value * repetitions * self._pool.num_threads
