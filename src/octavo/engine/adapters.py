"""`AdapterRegistry`: the LoRA adapters that requests can ask for, and which requests hold them."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from octavo.errors import AdapterError, CapacityError
from octavo.kv.hashing import ExtraKey, ExtraKeyKind
from octavo.lora_request import LoRARequest


class AdapterWeights(Protocol):
    """An adapter that was read into memory."""

    @property
    def revision(self) -> str:
        """Digest of its files."""
        ...


class AdapterLoader(Protocol):
    """Reads adapters, and hands them to what computes."""

    def read(self, path: str) -> AdapterWeights:
        """Read an adapter's files. Changes nothing; any thread may call it.

        Raises:
            AdapterError: they do not fit the model.
        """
        ...

    def install(self, slot: int, weights: AdapterWeights | None) -> None:
        """Let steps use an adapter under a number, or nothing under it any more. Not during a step."""
        ...


class LoadedAdapter(NamedTuple):
    """An adapter that requests can ask for."""

    name: str
    path: str
    slot: int
    """Its number in steps."""
    revision: str

    @property
    def extra_keys(self) -> Sequence[ExtraKey]:
        """What keeps its K/V apart from that of others."""
        return (
            ExtraKey(ExtraKeyKind.ADAPTER_NAME, self.name),
            ExtraKey(ExtraKeyKind.ADAPTER_REVISION, self.revision),
        )


class AdapterRegistry:
    """Up to ``max_loras`` adapters by name. The engine's thread changes it; any thread may look.

    Args:
        loader: reads and installs them; ``None`` if what computes knows no adapters.
        max_loras: most at once.

    Attributes:
        loaded: by name, oldest first; replaced as a whole at every change.
    """

    def __init__(self, loader: AdapterLoader | None = None, *, max_loras: int = 0) -> None:
        self._loader = loader
        self._max_loras = max_loras
        self._reading = threading.Lock()
        self._holders: dict[str, str] = {}  # request id to name
        self.loaded: Mapping[str, LoadedAdapter] = MappingProxyType({})

    @property
    def first(self) -> str | None:
        """Name of the adapter that was loaded first; ``None`` if there is none."""
        return next(iter(self.loaded), None)

    def get(self, name: str) -> LoadedAdapter:
        """The adapter of this name.

        Raises:
            AdapterError: there is none.
        """
        adapter = self.loaded.get(name)
        if adapter is None:
            names = ", ".join(map(repr, self.loaded)) or "none"
            raise AdapterError(f"there is no adapter {name!r}; loaded are: {names}")
        return adapter

    def holds(self, request: LoRARequest) -> bool:
        """Whether the adapter is loaded already.

        Raises:
            AdapterError: one of its name is, from another place; or it is not, and the request says not where
                it is.
        """
        adapter = self.loaded.get(request.lora_name)
        if adapter is None:
            if not request.lora_path:
                self.get(request.lora_name)
            return False
        if request.lora_path not in ("", adapter.path):
            raise AdapterError(
                f"the adapter {adapter.name!r} was loaded from {adapter.path}, not from {request.lora_path}; "
                "unload it first, or choose another name"
            )
        return True

    def read(self, path: str) -> AdapterWeights:
        """Read an adapter's files. Any thread may call it, so that no step waits for a disk.

        One at a time: how large one may be depends on the memory that those before it have left.

        Raises:
            AdapterError: they do not fit the model.
            CapacityError: no more adapters may be loaded.
        """
        with self._reading:
            return self._check_room().read(path)

    def add(self, request: LoRARequest, weights: AdapterWeights) -> bool:
        """Let requests ask for an adapter; returns whether it was not there before.

        Raises:
            AdapterError: one of its name is there, from another place.
            CapacityError: no more adapters may be loaded.
        """
        if self.holds(request):
            return False
        loader = self._check_room()
        taken = {adapter.slot for adapter in self.loaded.values()}
        slot = next(slot for slot in range(self._max_loras) if slot not in taken)
        loader.install(slot, weights)
        adapter = LoadedAdapter(request.lora_name, request.lora_path, slot, weights.revision)
        self.loaded = MappingProxyType({**self.loaded, adapter.name: adapter})
        return True

    def remove(self, name: str) -> None:
        """Forget an adapter and give its memory back.

        Raises:
            AdapterError: there is none of this name.
            CapacityError: requests hold it.
        """
        adapter = self.get(name)
        num_holders = Counter(self._holders.values())[name]
        if num_holders:
            raise CapacityError(
                f"the adapter {name!r} is in use (requests: {num_holders}); try again when they have ended"
            )
        if self._loader is not None:
            self._loader.install(adapter.slot, None)
        self.loaded = MappingProxyType({key: value for key, value in self.loaded.items() if key != name})

    def hold(self, request_id: str, adapter: LoadedAdapter | None) -> None:
        """A request is under way with an adapter, if with any."""
        if adapter is not None:
            self._holders[request_id] = adapter.name

    def release(self, request_ids: Iterable[str]) -> None:
        """Requests have ended; some may be without an adapter."""
        if self._holders:
            for request_id in request_ids:
                self._holders.pop(request_id, None)

    def _check_room(self) -> AdapterLoader:
        if self._loader is None:
            raise AdapterError("this engine has no adapters")
        if len(self.loaded) >= self._max_loras:
            raise CapacityError(
                f"{len(self.loaded)} adapters are loaded, and max_loras is {self._max_loras}; unload one, or "
                "start with a larger max_loras"
            )
        return self._loader
