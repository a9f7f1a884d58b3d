"""Give back the pages of mapped files that packing has read: the packed copy is what runs."""

import mmap
from collections.abc import Callable, Iterable, Iterator

from octavo.kernels.weight import Weight


class MappedPages:
    """The files that weights are mapped from.

    They stay mapped: what is used again, as rows of an embedding are, is read again, mostly from the
    system's cache.
    """

    def __init__(self, weights: Iterable[Weight]) -> None:
        self._mappings = set(_mappings(weights))

    def release(self) -> None:
        """Afterwards no page of them counts as memory of this process."""
        for mapping in self._mappings:
            mapping.madvise(mmap.MADV_DONTNEED)

    def released_by(self, progress: Callable[[int, int], None] | None) -> Callable[[int, int], None]:
        """``progress``, if there is any, which also releases: at no time is a whole file in memory."""

        def report(done: int, total: int) -> None:
            self.release()
            if progress is not None:
                progress(done, total)

        return report


def _mappings(weights: Iterable[Weight]) -> Iterator[mmap.mmap]:
    """Found behind the views that arrays are of one another; private memory is never among them."""
    for weight in weights:
        owner: object = weight.raw
        while owner is not None and not isinstance(owner, mmap.mmap):
            owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        if owner is not None:
            yield owner
