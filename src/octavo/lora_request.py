"""`LoRARequest`: which adapter a request wants, under vLLM's names."""

from dataclasses import dataclass

from octavo.diagnostics import shown
from octavo.errors import InvalidRequestError

MAX_NAME_LENGTH = 256


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """A LoRA adapter by name, and where it is if it has to be loaded first.

    Raises:
        InvalidRequestError: a value is of another type, or the name is empty, too long or not printable.
    """

    lora_name: str
    """What it is called among the loaded adapters, and as a model over HTTP."""
    lora_int_id: int = 0
    """Accepted as vLLM has it; adapters are told apart by name."""
    lora_path: str = ""
    """A PEFT folder, or a GGUF file; empty if the adapter is loaded already."""

    def __post_init__(self) -> None:
        name: object = self.lora_name
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME_LENGTH:
            raise InvalidRequestError(
                f"lora_name must be 1 to {MAX_NAME_LENGTH} printable characters, got {shown(name)}",
                param="lora_name",
            )
        if type(self.lora_int_id) is not int:
            raise InvalidRequestError(
                f"lora_int_id must be an integer, got {shown(self.lora_int_id)}", param="lora_int_id"
            )
        if not isinstance(self.lora_path, str):
            raise InvalidRequestError(
                f"lora_path must be a string, got {shown(self.lora_path)}", param="lora_path"
            )
