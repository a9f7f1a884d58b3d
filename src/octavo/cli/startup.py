"""The table printed at start: what was loaded, how large the cache is, and what computes."""

from collections import Counter

from rich import box
from rich.table import Table
from rich.text import Text

from octavo.build import Built
from octavo.kernels.program import Embed, Linear, Logits, Program
from octavo.kernels.weight import Weight


def startup_table(built: Built, *, seconds: float) -> Table:
    """Two columns; the KV formula has its numbers in it."""
    config, model, spec = built.config, built.model, built.kv_spec
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    rows = {
        "model": f"{model.spec.name} ({model.path.name})",
        "architecture": (
            f"{config.architecture}, {model.spec.num_layers} layers, "
            f"{model.num_parameters / 1e6:,.1f} M parameters"
        ),
        "weights": f"{model.weight_bytes / 2**20:,.1f} MiB, {quantizations(model.program)}",
        "KV per token": f"{spec.bytes_per_token:,} bytes",
        "KV per block": spec.formula(),
        "KV cache": (
            f"{config.num_blocks:,} blocks × {config.block_size} = {config.num_kv_tokens:,} tokens, "
            f"{config.kv_cache_bytes / 2**20:,.0f} MiB, prefix caching "
            f"{'on' if config.enable_prefix_caching else 'off'}"
        ),
        "concurrency": (
            f"{config.max_concurrency:,.1f} sequences of {config.max_model_len:,} tokens at once; "
            f"at most {config.scheduler.max_num_seqs} requests and "
            f"{config.scheduler.max_num_batched_tokens} tokens a step"
        ),
        "kernels": f"{config.kernels}, {config.isa}, {_threads(config.num_threads)}",
        "ready after": f"{seconds:.2f} s",
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def quantizations(program: Program) -> str:
    """The formats of the matrices by share of bytes, as in ``Q4_1 88 %, Q8_0 12 %``."""
    num_bytes: Counter[str] = Counter()
    for weight in _matrices(program).values():
        num_bytes[str(weight.quantization)] += weight.raw.nbytes
    total = sum(num_bytes.values())
    shares = [f"{name} {100 * count / total:.0f} %" for name, count in num_bytes.most_common()]
    return ", ".join(shares)


def _matrices(program: Program) -> dict[int, Weight]:
    """Every matrix once: a tied head and its embedding are one."""
    weights: list[Weight] = []
    for op in program.ops:
        match op:
            case Embed() | Logits():
                weights.append(op.weight)
            case Linear():
                weights += op.parts
    return {id(weight): weight for weight in weights}


def _threads(num_threads: int) -> str:
    return "1 thread" if num_threads == 1 else f"{num_threads} threads"
