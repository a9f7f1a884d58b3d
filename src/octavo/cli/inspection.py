"""What `octavo inspect` finds out about a model."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from octavo.config import QuantizationName
from octavo.kernels.program import Program
from octavo.kernels.quantization import bytes_per_row
from octavo.kernels.select import native_support
from octavo.kernels.weight import Quantization, Weight
from octavo.kv.spec import KVCacheSpec, KVDtypeChoice, choose_kv_dtype
from octavo.models.loaded import LoadedModel
from octavo.models.weight_plan import planned_quantization
from octavo.runner.memory import format_memory_size

_FLOATS = frozenset({Quantization.F32, Quantization.F16, Quantization.BF16})
_GROUPS = {"token_embd": "embeddings", "output": "output head"}
"""By the beginning of a tensor's name; the others are told apart by their role in a layer."""


def inspection(
    model: LoadedModel, *, quantization: QuantizationName, kv_dtype: KVDtypeChoice
) -> dict[str, Any]:
    """Everything that is shown, as JSON takes it."""
    spec = model.spec
    kv = KVCacheSpec(
        block_size=16,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype=choose_kv_dtype(kv_dtype, spec.head_dim),
    )
    groups = _groups(model.program, quantization)
    return {
        "name": spec.name,
        "path": str(model.path),
        "architecture": spec.architecture,
        "parameters": model.num_parameters,
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_heads": spec.num_heads,
        "num_kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "context_length": spec.context_length,
        "windows": _windows(model),
        "weight_bytes": sum(group["bytes"] for group in groups),
        "tensor_groups": groups,
        "kv_dtype": kv.dtype,
        "kv_bytes_per_token": kv.bytes_per_token,
        "kv_formula": kv.formula(),
        "instruction_set": _instruction_set(),
        "chat_templates": sorted(model.tokenizer.chat_templates.by_name),
        "bos_token_id": model.tokenizer.bos_token_id,
        "end_token_ids": sorted(model.tokenizer.eos_token_ids),
        "generation_defaults": {**model.sampling_defaults},
    }


def inspection_table(found: Mapping[str, Any]) -> RenderableType:
    """The same for people."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in _rows(found).items():
        table.add_row(name, Text(value))
    return Group(table, _group_table(found["tensor_groups"]))


def _rows(found: Mapping[str, Any]) -> dict[str, str]:
    window_texts = [f"{count} of {window:,} tokens" for window, count in found["windows"].items()]
    defaults = ", ".join(f"{name} {value:g}" for name, value in found["generation_defaults"].items())
    ends = ", ".join(map(str, found["end_token_ids"])) or "none"
    return {
        "model": f"{found['name']} ({found['path']})",
        "architecture": f"{found['architecture']}, {found['num_layers']} layers of {found['hidden_size']:,}, "
        f"MLP {found['intermediate_size']:,}",
        "parameters": f"{found['parameters'] / 1e6:,.1f} M",
        "attention": f"{found['num_heads']} heads, {found['num_kv_heads']} K/V heads of {found['head_dim']}"
        + (f"; layers with a window: {', '.join(window_texts)}" if window_texts else ""),
        "context": f"{found['context_length']:,} tokens",
        "vocabulary": f"{found['vocab_size']:,} tokens; a text ends at {ends}",
        "weights": format_memory_size(found["weight_bytes"]),
        "KV per token": f"{found['kv_bytes_per_token']:,} bytes in {found['kv_dtype']}",
        "KV per block": found["kv_formula"],
        "chat template": ", ".join(found["chat_templates"]) or "none; --chat-template FILE sets one",
        "sampling": defaults or "nothing recommended",
        "kernels": found["instruction_set"],
    }


def _group_table(groups: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("tensors", "number", "parameters", "stored as", "run as", "size", "kernel"):
        table.add_column(heading, justify="right" if heading in ("number", "parameters", "size") else "left")
    for group in groups:
        table.add_row(
            group["group"],
            f"{group['tensors']:,}",
            f"{group['parameters']:,}",
            group["stored_as"],
            group["run_as"],
            format_memory_size(group["bytes"]),
            group["kernel"],
        )
    return table


def _groups(program: Program, kind: QuantizationName) -> list[dict[str, Any]]:
    """Tensors of one purpose and one format together."""
    members: defaultdict[tuple[str, Quantization, Quantization], list[Weight]] = defaultdict(list)
    for weight in _weights(program):
        run_as = planned_quantization(weight.name, weight.shape, kind) or weight.quantization
        members[_group_of(weight), weight.quantization, run_as].append(weight)
    return [
        {
            "group": group,
            "tensors": len(weights),
            "parameters": sum(math.prod(weight.shape) for weight in weights),
            "stored_as": str(stored_as),
            "run_as": str(run_as),
            "bytes": sum(_num_bytes(weight, run_as) for weight in weights),
            "kernel": _kernel(group, run_as),
        }
        for (group, stored_as, run_as), weights in members.items()
    ]


def _weights(program: Program) -> list[Weight]:
    """Every weight once, in the order of the program."""
    return list({id(weight): weight for op in program.ops for weight in _weights_in(op)}.values())


def _weights_in(value: object) -> Iterator[Weight]:
    if isinstance(value, Weight):
        yield value
        return
    names = getattr(type(value), "__slots__", ())
    parts = value if isinstance(value, tuple) else [getattr(value, name) for name in names]
    for part in parts:
        yield from _weights_in(part)


def _group_of(weight: Weight) -> str:
    if len(weight.shape) == 1:
        return "norms and biases"
    first, *rest = weight.name.split(".")
    if first != "blk":
        return _GROUPS.get(first, first)
    role = rest[1] if len(rest) > 1 else ""
    if role.startswith("attn"):
        return "attention"
    return "experts" if "_exps" in role or len(rest) > 3 else "MLP"


def _num_bytes(weight: Weight, quantization: Quantization) -> int:
    return math.prod(weight.shape[:-1]) * bytes_per_row(quantization, weight.shape[-1])


def _kernel(group: str, quantization: Quantization) -> str:
    if group == "norms and biases":
        return "float"
    return "float" if quantization in _FLOATS else "integer"


def _windows(model: LoadedModel) -> dict[int, int]:
    """How many layers look back so many tokens; those without a window are left out."""
    return dict(Counter(layer.window for layer in model.spec.layers if layer.window is not None))


def _instruction_set() -> str:
    native = native_support()
    return f"numpy reference: {native.problem}" if native.problem else f"native, {native.isas[0]}"
