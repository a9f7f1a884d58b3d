"""`ModelAdapterLoader`: adapters from their files into the interpreter. Implements `AdapterLoader`."""

from collections.abc import Callable

from octavo.engine.adapters import AdapterWeights
from octavo.errors import InvariantError
from octavo.kernels.adapter import Adapter
from octavo.models.adapter import ReadAdapter, read_adapter
from octavo.models.loaded import LoadedModel
from octavo.runner.memory import free_memory


class ModelAdapterLoader:
    """Adapters for one model.

    Args:
        model: the base.
        set_adapter: of what runs it.
    """

    def __init__(self, model: LoadedModel, set_adapter: Callable[[int, Adapter | None], None]) -> None:
        self._model = model
        self._set_adapter = set_adapter

    def read(self, path: str) -> ReadAdapter:
        """Read an adapter's files. Changes nothing; any thread may call it.

        Raises:
            AdapterError: they do not fit the model, or the memory that is free.
        """
        # For a moment it is there twice: as it was read, and as the kernels want it.
        return read_adapter(path, self._model, max_bytes=free_memory() // 2)

    def install(self, slot: int, weights: AdapterWeights | None) -> None:
        """Let steps use an adapter under a number, or nothing under it any more."""
        if weights is not None and not isinstance(weights, ReadAdapter):
            raise InvariantError(f"an adapter that was read elsewhere: {type(weights).__name__}")
        self._set_adapter(slot, None if weights is None else weights.adapter)
