"""LoRA adapters as PEFT writes them: a folder with adapter_config.json and adapter_model.safetensors."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata
from octavo.models.huggingface_names import gguf_name
from octavo.models.json_document import read_json_file
from octavo.models.quoting import quote
from octavo.models.safetensors_file import SafetensorsFile
from octavo.models.stored_adapter import StoredAdapter, StoredPair

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

_MAX_CONFIG_BYTES = 1 << 20
_TENSOR = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(A|B)(?:\.default)?\.weight")
_REFUSED = (
    "alora_invocation_tokens",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "velora_config",
)
"""What would change more than the products with some weights, or would change them otherwise."""

_CHANGING_THE_BASE = ("corda", "loftq", "lora_ga", "olora", "pissa")
"""Ways to begin that take from the base's weights what the matrices begin with."""


def open_peft_adapter(folder: Path, architecture: str) -> StoredAdapter:
    """Read the configuration and the header of the weights.

    Args:
        folder: with both files.
        architecture: of the base, by GGUF's name.

    Raises:
        ModelLoadError: a file is missing or damaged, half of a pair is missing, or the adapter is more than
            low-rank matrices.
    """
    path = folder / CONFIG_FILE
    config = _Config(path, read_json_file(path, max_bytes=_MAX_CONFIG_BYTES))
    if not (folder / WEIGHTS_FILE).exists() and (folder / "adapter_model.bin").exists():
        raise ModelLoadError(
            f"{folder}: adapter_model.bin is a pickle, which could run anything; save it as safetensors"
        )
    file = SafetensorsFile(folder / WEIGHTS_FILE)
    pairs = [
        _read_pair(file, module, names, config, architecture) for module, names in _pair_names(file).items()
    ]
    digest = hashlib.sha256(path.read_bytes())
    digest.update(file.mapping)
    return StoredAdapter(pairs, has_half_split_heads=True, base=config.base, revision=digest.hexdigest())


class _Config:
    """The parts of adapter_config.json that decide what the matrices mean."""

    def __init__(self, path: Path, values: Mapping[str, object]) -> None:
        self._typed = Metadata(path, {key: value for key, value in values.items() if value is not None})  # type: ignore[misc]
        kind = self._typed.text("peft_type") or "LORA"
        if kind != "LORA":
            raise ModelLoadError(f"{path}: peft_type {quote(kind)} is not supported; LORA is")
        for key in _REFUSED:
            if values.get(key):
                raise ModelLoadError(f"{path}: {key} is not supported; train the adapter without it")
        if str(start := values.get("init_lora_weights")).lower().startswith(_CHANGING_THE_BASE):
            raise ModelLoadError(
                f"{path}: init_lora_weights {quote(start)} changes the base, too, which is not supported;"
                " save the adapter with path_initial_model_for_weight_conversion, which makes it plain LoRA"
            )
        if self._typed.text("bias") not in (None, "none"):
            raise ModelLoadError(
                f"{path}: trained biases are not supported; train the adapter with bias none"
            )
        self._path = path
        self.base = self._typed.text("base_model_name_or_path") or ""
        self._alpha = self._typed.number("lora_alpha", default=8.0)
        self._alphas = self._pattern(values.get("alpha_pattern"))
        self._is_rank_stabilised = self._typed.flag("use_rslora", default=False)

    def scale(self, module: str, rank: int) -> float:
        """Factor of one module's change: alpha over the rank, or over its root with rsLoRA."""
        alpha = next((a for key, a in self._alphas.items() if f".{module}".endswith(f".{key}")), self._alpha)
        return alpha / (rank**0.5 if self._is_rank_stabilised else rank)

    def _pattern(self, value: object) -> dict[str, float]:
        """Numbers by the end of a module's name; PEFT's regular expressions could be made to hang."""
        if not isinstance(value, dict):
            return {}
        for key in value:
            if not re.fullmatch(r"[\w.]{1,200}", key):
                raise ModelLoadError(
                    f"{self._path}: alpha_pattern {quote(key)} is not supported; names of modules are"
                )
        numbers = Metadata(self._path, value)
        return {key: numbers.number(key) for key in value}


def _pair_names(file: SafetensorsFile) -> dict[str, dict[str, str]]:
    """For each module the names of its matrices, by "A" and "B"."""
    names: dict[str, dict[str, str]] = {}
    for name in file.tensors:
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise ModelLoadError(f"{file.path}: tensor {quote(name)} is no LoRA matrix of a linear layer")
        names.setdefault(match[1], {})[match[2]] = name
    return names


def _read_pair(
    file: SafetensorsFile, module: str, names: Mapping[str, str], config: _Config, architecture: str
) -> StoredPair:
    for half in ("A", "B"):
        if half not in names:
            raise ModelLoadError(f"{file.path}: module {quote(module)} has no lora_{half}")
    a, b = file.weight(names["A"]), file.weight(names["B"])
    target = gguf_name(f"{module}.weight", architecture) or module
    return StoredPair(target, module, a, b, config.scale(module, a.shape[0] if a.shape[0] else 1))
