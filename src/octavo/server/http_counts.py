"""`HttpCounts`: how many requests were answered with what, and why some were refused."""

from collections import Counter


class HttpCounts:
    """Counts answers. Only the event loop's thread changes it.

    Attributes:
        requests: by method, path and status.
        refused: by reason.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.refused: Counter[str] = Counter()

    def answered(self, method: str, path: str, status: int, reason: str | None) -> None:
        """Count one answer.

        Args:
            method: of the request.
            path: of the route, with the names of its parameters in it.
            status: of the response.
            reason: the code of the error, if it is one.
        """
        self.requests[method, path, status] += 1
        if reason is not None:
            self.refused[reason] += 1
