"""`Metadata`: the key-value section of a GGUF file, read with types and limits."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelLoadError
from octavo.models.quoting import quote

MetadataValue = bool | int | float | str | list[str] | npt.NDArray[Any]
"""Arrays of numbers are numpy views of the file; arrays of strings are lists."""

_LARGEST_COUNT = 1 << 24


class Metadata:
    """Typed access: a value that is missing, of another type or out of range is one clear error.

    Every method raises `ModelLoadError` for a value of the wrong type or out of its range.
    """

    def __init__(self, path: Path, values: Mapping[str, MetadataValue]) -> None:
        self.path = path
        self.values = values

    def text(self, key: str) -> str | None:
        """A string, or ``None`` if the key is missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def texts(self, key: str) -> list[str] | None:
        """An array of strings, or ``None`` if the key is missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self._wrong(key, value, "an array of strings")
        return value

    def array(self, key: str, *, length: int) -> npt.NDArray[Any] | None:
        """An array of ``length`` numbers, or ``None`` if the key is missing."""
        value = self.values.get(key)
        if value is not None and not (isinstance(value, np.ndarray) and len(value) == length):
            raise self._wrong(key, value, f"an array of {length:,} numbers")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """A truth value."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def count(
        self, key: str, *, default: int | None = None, minimum: int = 1, maximum: int = _LARGEST_COUNT
    ) -> int:
        """An integer from ``minimum`` to ``maximum``; without a default the key must be there.

        An array counts as its element if all its elements are equal (a number given per layer).
        """
        value = self._required(key, default)
        if isinstance(value, np.ndarray) and value.size and np.all(value == value[0]):
            value = value[0].item()
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self._wrong(key, value, f"an integer from {minimum} to {maximum:,}")
        return value

    def number(self, key: str, *, default: float | None = None) -> float:
        """A positive finite number; without a default the key must be there."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a positive number")
        if not 0 < value <= sys.float_info.max:  # an integer may be larger than any float
            raise self._wrong(key, value, "a positive number")
        return float(value)

    def token_id(self, key: str, *, vocab_size: int) -> int | None:
        """A token id below ``vocab_size``, or ``None`` if the key is missing."""
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
            raise self._wrong(key, value, f"a token id below {vocab_size:,}")
        return value

    def _required(self, key: str, default: float | None) -> MetadataValue:
        value = self.values.get(key, default)
        if value is None:
            raise ModelLoadError(f"{self.path}: the metadata lacks {quote(key)}, which this model needs")
        return value

    def _wrong(self, key: str, value: MetadataValue, wanted: str) -> ModelLoadError:
        found = f"an array of {len(value):,} values" if isinstance(value, np.ndarray | list) else quote(value)
        return ModelLoadError(f"{self.path}: metadata {quote(key)} must be {wanted}, found {found}")
