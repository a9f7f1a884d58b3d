"""The rope parameters of a ``config.json`` under GGUF's keys, as `octavo.models.rope` reads them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ModelLoadError
from octavo.models.gguf_metadata import Metadata, MetadataValue
from octavo.models.quoting import quote
from octavo.models.rope_scaling import longrope_magnitude, yarn_magnitude

_SECTION, _OLDER_SECTION = "rope_parameters", "rope_scaling"
_OUTSIDE_THE_SECTION = (
    "rope_theta",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "max_position_embeddings",
    "original_max_position_embeddings",
)
_FULL, _SLIDING = "full_attention", "sliding_attention"
_SUPPORTED = "default, linear, llama3, yarn and longrope"

Entries = dict[str, MetadataValue]


def rope_metadata(
    config: Mapping[str, Any], path: Path, *, architecture: str, head_dim: int
) -> dict[str, MetadataValue]:
    """Entries such as ``llama.rope.freq_base`` for the rope section of ``config.json``.

    Both spellings are read: ``rope_parameters`` of transformers 5 and the older ``rope_scaling``. Where
    layers differ, ``freq_base_swa`` is the base of those with a window.

    Args:
        config: the whole file, or the part of it that describes the text model.
        path: named in errors.
        architecture: prefix of the keys.
        head_dim: size of a head, of which ``partial_rotary_factor`` may leave a part as it is.

    Raises:
        ModelLoadError: a value is missing or out of range, or the kind of scaling is not supported.
    """
    rope = Metadata(path, _flattened(config, path))
    factor = rope.number("partial_rotary_factor", default=1.0)
    if factor > 1:
        raise ModelLoadError(f"{path}: partial_rotary_factor must be at most 1, found {factor:g}")
    entries: Entries = {
        "dimension_count": int(head_dim * factor),
        "freq_base": rope.number("rope_theta", default=10_000.0),
        **{f"scaling.{name}": value for name, value in _scaling_entries(rope).items()},
    }
    if "rope_local_base_freq" in rope.values:
        entries["freq_base_swa"] = rope.number("rope_local_base_freq")
    return {f"{architecture}.rope.{name}": value for name, value in entries.items()}


def _flattened(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The section's entries over those of the file itself, where older files have some of them."""
    outer = {name: config[name] for name in _OUTSIDE_THE_SECTION if name in config}
    section = _object(config.get(_SECTION) or config.get(_OLDER_SECTION) or {}, path)
    if _SLIDING in section:
        local = _object(section[_SLIDING], path)
        if local.get("rope_type", "default") != "default":
            raise ModelLoadError(f"{path}: scaled rope in layers with a window is not supported")
        outer["rope_local_base_freq"] = local.get("rope_theta")
    section = _object(section.get(_FULL, section), path)
    return {name: value for name, value in {**outer, **section}.items() if value is not None}


def _object(value: object, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ModelLoadError(f"{path}: {_SECTION} must be an object, found {quote(value)}")
    return value


def _scaling_entries(rope: Metadata) -> Entries:
    kind = rope.text("rope_type") or rope.text("type") or "default"
    match kind:
        case "default":
            return {}
        case "linear":
            return {"type": kind, "factor": rope.number("factor")}
        case "llama3":
            return {
                "type": kind,
                "factor": rope.number("factor"),
                "low_freq_factor": rope.number("low_freq_factor"),
                "high_freq_factor": rope.number("high_freq_factor"),
                "original_context_length": rope.count("original_max_position_embeddings"),
            }
        case "yarn":
            return _yarn_entries(rope)
        case "longrope" | "su":
            return _longrope_entries(rope)
    raise ModelLoadError(f"{rope.path}: rope type {quote(kind)} is not supported; {_SUPPORTED} are")


def _yarn_entries(rope: Metadata) -> Entries:
    context, original_context = _contexts(rope)
    factor = rope.number("factor", default=context / original_context)
    magnitude = yarn_magnitude(factor)
    if "mscale" in rope.values and "mscale_all_dim" in rope.values:
        over, under = (yarn_magnitude(factor, rope.number(name)) for name in ("mscale", "mscale_all_dim"))
        magnitude = over / under
    return {
        "type": "yarn",
        "factor": factor,
        "original_context_length": original_context,
        "yarn_beta_fast": rope.number("beta_fast", default=32.0),
        "yarn_beta_slow": rope.number("beta_slow", default=1.0),
        "yarn_truncate": rope.flag("truncate", default=True),
        # GGUF's factor comes on top of what YaRN itself prescribes.
        "attn_factor": rope.number("attention_factor", default=magnitude) / yarn_magnitude(factor),
    }


def _longrope_entries(rope: Metadata) -> Entries:
    context, original_context = _contexts(rope)
    magnitude = longrope_magnitude(context / original_context, original_context)
    return {
        "type": "longrope",
        "original_context_length": original_context,
        "short_factors": _pair_factors(rope, "short_factor"),
        "long_factors": _pair_factors(rope, "long_factor"),
        "attn_factor": rope.number("attention_factor", default=magnitude),
    }


def _contexts(rope: Metadata) -> tuple[int, int]:
    """The context of the model and that which it was first trained for [tokens]."""
    context = rope.count("max_position_embeddings", default=2048)
    return context, rope.count("original_max_position_embeddings", default=context)


def _pair_factors(rope: Metadata, name: str) -> MetadataValue:
    factors: Any = rope.values.get(name)
    if not isinstance(factors, list):
        raise ModelLoadError(f"{rope.path}: {name} must be a list of numbers, found {quote(factors)}")
    for factor in factors:
        if not isinstance(factor, int | float) or not 0 < factor <= sys.float_info.max:
            raise ModelLoadError(f"{rope.path}: {name} must hold positive numbers, found {quote(factor)}")
    return np.array(factors, np.float64)
