"""`ListView`: a list that only grows, as it was at one moment, without a copy."""

# mypy: disable-error-code="explicit-override"
# (typing.override needs 3.12)

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class ListView(Sequence[T]):
    """What ``items`` holds from ``start`` on; what is appended later does not show.

    Copying a request's tokens for each of its outputs would cost time in the square of their number.

    Args:
        items: only ever appended to.
        start: at most its length.
    """

    __slots__ = ("_items", "_places")

    def __init__(self, items: list[T], start: int = 0) -> None:
        self._items = items
        self._places = range(start, len(items))

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._places.start, self._places.stop)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._items[place] for place in self._places[index]]
        return self._items[self._places[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple | ListView):
            return NotImplemented
        return len(other) == len(self) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return repr(list(self))
