"""LoRA adapters in one GGUF file, as other tools convert them."""

import hashlib
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.models.gguf import GGUFFile
from octavo.models.quoting import quote
from octavo.models.stored_adapter import StoredAdapter, StoredPair

_A, _B = ".lora_a", ".lora_b"


def open_gguf_adapter(path: Path, architecture: str) -> StoredAdapter:
    """Read the header.

    Args:
        path: the file.
        architecture: of the base, by GGUF's name.

    Raises:
        ModelLoadError: the file is damaged, no adapter, or one of another architecture, or half of a pair is
            missing.
    """
    file = GGUFFile(path)
    kind = (file.metadata.text("general.type"), file.metadata.text("adapter.type"))
    if kind != ("adapter", "lora"):
        raise ModelLoadError(f"{path}: not a LoRA adapter: general.type is {quote(kind[0])}")
    trained_for = file.metadata.text("general.architecture")
    if trained_for != architecture:
        raise ModelLoadError(
            f"{path}: the adapter is for {quote(trained_for)}, the model is {architecture!r}"
        )
    alpha = file.metadata.number("adapter.lora.alpha")
    targets = {name.removesuffix(_A).removesuffix(_B) for name in file.tensors}
    with path.open("rb") as stream:
        revision = hashlib.file_digest(stream, "sha256").hexdigest()
    base = file.metadata.text("general.base_model.0.name") or ""
    pairs = [_read_pair(file, target, alpha) for target in sorted(targets)]
    return StoredAdapter(pairs, has_half_split_heads=False, base=base, revision=revision)


def _read_pair(file: GGUFFile, target: str, alpha: float) -> StoredPair:
    for half in (_A, _B):
        if target + half not in file.tensors:
            raise ModelLoadError(f"{file.path}: weight {quote(target)} has no {half.removeprefix('.')}")
    a, b = file.weight(target + _A), file.weight(target + _B)
    return StoredPair(target, target, a, b, alpha / max(a.shape[0], 1))
