"""Files that are read through a memory map, so that nobody pays for the parts that nobody reads."""

import mmap
from pathlib import Path

from octavo.errors import ModelLoadError


def map_file(path: Path, *, kind: str) -> mmap.mmap:
    """A whole regular file, for reading.

    Args:
        path: the file.
        kind: what it is taken for, such as "GGUF", for error messages.

    Raises:
        ModelLoadError: it is not there, empty, no regular file or not readable.
    """
    try:
        if not path.is_file():
            problem = "a directory" if path.is_dir() else "no regular file" if path.exists() else "not there"
            raise ModelLoadError(f"{path}: the {kind} file is {problem}")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # what mmap says of an empty file, and open of a NUL in the name
        raise ModelLoadError(f"{path}: not a {kind} file: {error}") from None
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror}") from None
