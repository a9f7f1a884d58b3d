"""`Cursor`: reads the head of a GGUF file forward, never beyond its end."""

import mmap
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelLoadError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_LONGEST_NAME = 1024
_MOST_ELEMENTS = 1 << 22
"""Of all arrays together: ten times the tokens and merges of the largest vocabularies."""


class Cursor:
    """A position in a memory-mapped little-endian file.

    Every method says with ``what`` it reads, raises `ModelLoadError` if that would end beyond the file,
    and reserves memory only for what the file really holds.
    """

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0
        self._elements_left = _MOST_ELEMENTS

    def error(self, message: str) -> ModelLoadError:
        """An error that names the file and the position."""
        return ModelLoadError(f"{self.path}: {message} (at byte {self.position:,} of {self.size:,})")

    def expect(self, num_bytes: int, what: str) -> None:
        """Check that ``num_bytes`` follow."""
        if num_bytes > self.size - self.position:
            raise self.error(f"truncated or damaged: {what} needs {num_bytes:,} bytes")

    def unpack(self, layout: struct.Struct, what: str) -> int | float | bool:
        """One number."""
        self.expect(layout.size, what)
        value: int | float | bool = layout.unpack_from(self.buffer, self.position)[0]
        self.position += layout.size
        return value

    def u32(self, what: str) -> int:
        """An unsigned 32-bit integer."""
        return int(self.unpack(_U32, what))

    def u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        return int(self.unpack(_U64, what))

    def name(self, what: str) -> str:
        """A short string: names go into error messages."""
        name = self.string(what)
        if len(name) > _LONGEST_NAME:
            raise self.error(f"damaged: {what} has {len(name):,} characters, more than {_LONGEST_NAME:,}")
        return name

    def string(self, what: str) -> str:
        """Length and UTF-8 bytes."""
        return self.strings(1, what)[0]

    def strings(self, count: int, what: str) -> list[str]:
        """``count`` strings; vocabularies have hundreds of thousands, so the loop is kept tight."""
        self.expect(count * _U64.size, what)
        self._count_elements(count, what)
        buffer, size, start = self.buffer, self.size, self.position
        length_at = _U64.unpack_from
        strings = []
        try:
            for _ in range(count):
                end = start + 8 + length_at(buffer, start)[0]
                if end > size:
                    break
                strings.append(buffer[start + 8 : end].decode())
                start = end
        except struct.error:
            pass  # no room for a length: fewer strings than there should be
        except UnicodeDecodeError:
            self.position = start
            raise self.error(f"damaged: {what} holds a string that is not UTF-8") from None
        self.position = start
        if len(strings) < count:
            raise self.error(f"truncated or damaged: a string of {what} ends beyond the file")
        return strings

    def numbers(self, dtype: np.dtype[np.generic], count: int, what: str) -> npt.NDArray[np.generic]:
        """``count`` numbers as a view of the file [count]."""
        self.expect(count * dtype.itemsize, what)
        self._count_elements(count, what)
        values = np.frombuffer(self.buffer, dtype, count, self.position)
        self.position += values.nbytes
        return values

    def _count_elements(self, count: int, what: str) -> None:
        self._elements_left -= count
        if self._elements_left < 0:
            raise self.error(
                f"damaged: {what} brings the arrays of the file to more than {_MOST_ELEMENTS:,} values"
            )
