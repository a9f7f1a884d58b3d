"""`octavo inspect`: what a model is and what it costs, before any weight is read."""

import json as json_format

from octavo.cli.options import DEFAULTS, Flag
from octavo.config import QuantizationName
from octavo.kv.spec import KVDtypeChoice


def inspect(
    model: str = DEFAULTS.model.model,
    *,
    quantization: QuantizationName = "none",
    kv_dtype: KVDtypeChoice = DEFAULTS.cache.kv_dtype,
    revision: str | None = None,
    offline: Flag = False,
    json: Flag = False,
) -> None:
    """Say what a model is and what it costs: read from the headers of its files, no weight is loaded.

    For example:

        octavo inspect ./my-model.gguf

        octavo inspect ./a-folder --quantization int4 --json

    Args:
        model: A .gguf file, a Hugging Face folder, a name on the hub, or the default model's short name.
        quantization: Show what the weights of safetensors files would become; nothing is packed.
        kv_dtype: Number format of K and V in the cache; auto is what the engine would take.
        revision: Branch, tag or commit of a model on the hub.
        offline: Fetch nothing.
        json: One JSON object on stdout.
    """
    # What opens a model is imported only here, so that --help stays instant.
    from octavo.cli.inspection import inspection, inspection_table
    from octavo.cli.terminal import stdout_console, write_text
    from octavo.models.default_model import resolve_model_path
    from octavo.models.loaded import check_quantization, load_model

    path = resolve_model_path(model, revision=revision, offline=offline)
    check_quantization(path, quantization)
    loaded = load_model(path)
    found = inspection(loaded, quantization=quantization, kv_dtype=kv_dtype)
    if json:
        write_text(json_format.dumps(found, ensure_ascii=False, indent=2) + "\n")
    else:
        stdout_console().print(inspection_table(found))
