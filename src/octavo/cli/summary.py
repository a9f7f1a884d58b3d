"""What is said on stderr after generation: block tables, cached tokens, memory and speed."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from octavo.cli.streaming import Run
from octavo.engine.choice import choice_ids
from octavo.kv.spec import KVCacheSpec
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.runner.memory import format_memory_size

MAX_TABLE_ENTRIES = 12
"""Longer block tables are shown with their middle left out."""


def summary(run: Run, *, spec: KVCacheSpec, num_blocks: int) -> RenderableType:
    """The table of requests, the memory line and the speed line."""
    return Group(
        request_table(run),
        Text(memory_line(run, spec=spec, num_blocks=num_blocks), style="dim"),
        Text(speed_line(run), style="dim"),
    )


def request_table(run: Run) -> Table:
    """One row per continuation."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("request", "prompt", "cached", "generated"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("block table")
    table.add_column("ended by", no_wrap=True)
    for output in run.outputs.values():
        ids = choice_ids(output.request_id, len(output.outputs))
        for choice, choice_id in zip(output.outputs, ids, strict=True):
            table.add_row(
                choice_id,
                str(len(output.prompt_token_ids)),
                _cached(output),
                str(len(choice.token_ids)),
                _shortened(run.cache.block_tables.get(choice_id, [])),
                _ending(choice),
            )
    return table


def memory_line(run: Run, *, spec: KVCacheSpec, num_blocks: int) -> str:
    """How much of the KV cache was used, and how much of that held nothing."""
    cache = run.cache
    used = format_memory_size(cache.peak_blocks * spec.bytes_per_block)
    total = format_memory_size(num_blocks * spec.bytes_per_block)
    return (
        f"KV cache: at most {cache.peak_blocks:,} of {num_blocks:,} blocks in use ({used} of {total}), "
        f"{cache.shared_blocks} of them shared; unfilled slots: {cache.unfilled_slots} "
        f"(under {spec.block_size} per sequence)"
    )


def speed_line(run: Run) -> str:
    """Time to the first token, and tokens per second after it."""
    timing = run.timing
    num_later = max(run.num_generated_tokens - len(run.outputs), 0)
    rate = num_later / timing.seconds_after_first_token if timing.seconds_after_first_token else 0.0
    return f"Speed: first token after {timing.seconds_to_first_token:.2f} s, then {rate:.1f} tokens/s"


def _cached(output: RequestOutput) -> str:
    return f"{output.num_cached_tokens}" if output.num_cached_tokens else "–"


def _ending(choice: CompletionOutput) -> str:
    reason = choice.finish_reason or "–"
    return f"{reason}: {choice.stop_reason!r}" if choice.stop_reason is not None else reason


def _shortened(block_table: Sequence[int]) -> str:
    ids = [str(block_id) for block_id in block_table]
    if len(ids) > MAX_TABLE_ENTRIES:
        half = MAX_TABLE_ENTRIES // 2
        ids = [*ids[:half], f"… {len(ids) - 2 * half} more …", *ids[-half:]]
    return " ".join(ids)
