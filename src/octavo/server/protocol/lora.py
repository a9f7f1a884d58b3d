"""``/v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``."""

from pydantic import BaseModel


class LoadLoRAAdapter(BaseModel):
    """An adapter to load."""

    lora_name: str
    """What it is to be called, as ``model`` of requests."""
    lora_path: str
    """A PEFT folder or a GGUF file on the server's disk."""


class UnloadLoRAAdapter(BaseModel):
    """An adapter to unload."""

    lora_name: str


class LoRAAdapters(BaseModel):
    """The adapters that are loaded then."""

    loaded: list[str]
