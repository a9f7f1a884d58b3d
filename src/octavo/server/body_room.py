"""`BodyRoom`: the memory for bodies of requests under way, and who holds how much of it."""

from collections import Counter
from types import TracebackType
from typing import Self

from octavo.sched.limits import exceeds_share
from octavo.server.errors import ApiError


class BodyRoom:
    """The memory for bodies of requests under way.

    Args:
        num_bytes: all of it. A tenant may hold as much as is left free, so no flood takes it from the others.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_free = num_bytes
        self._num_held: Counter[str] = Counter()

    def take(self, tenant: str, num_bytes: int) -> None:
        """Hold more.

        Raises:
            ApiError: there is no room now.
        """
        if tenant and exceeds_share(self._num_held[tenant], num_bytes, self._num_free):
            raise ApiError(
                429,
                f"your requests under way hold {self._num_held[tenant]} bytes of bodies, your share; "
                f"wait for some of their answers",
                code="rate_limit_exceeded",
            )
        if num_bytes > self._num_free:
            raise ApiError(
                503, "there is no room for more bodies of requests; try again later", code="overloaded"
            )
        self._num_free -= num_bytes
        self._num_held[tenant] += num_bytes

    def give_back(self, tenant: str, num_bytes: int) -> None:
        """Hold less."""
        self._num_free += num_bytes
        self._num_held[tenant] -= num_bytes


class BodyHold:
    """What one request holds of a `BodyRoom`, until the end of the block.

    Args:
        room: of all requests.
        tenant: whose request it is.
    """

    def __init__(self, room: BodyRoom, tenant: str) -> None:
        self._room = room
        self._tenant = tenant
        self._num_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.give_back(self._tenant, self._num_bytes)

    def take(self, num_bytes: int) -> None:
        """Hold more.

        Raises:
            ApiError: there is no room now.
        """
        self._room.take(self._tenant, num_bytes)
        self._num_bytes += num_bytes
