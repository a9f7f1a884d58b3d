"""`ListView`: the beginning of a list that only grows, as it was at one moment, without a copy."""

# mypy: disable-error-code="explicit-override"
# (typing.override needs 3.12)

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class ListView(Sequence[T]):
    """The first ``len(items)`` of ``items``; what is appended later does not show.

    Copying a request's tokens for each of its outputs would cost time in the square of their number.

    Args:
        items: only ever appended to.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T]) -> None:
        self._items = items
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._items[position] for position in range(*index.indices(self._length))]
        return self._items[range(self._length)[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple | ListView):
            return NotImplemented
        return len(other) == self._length and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(list(self))
