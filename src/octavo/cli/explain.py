"""`octavo explain`: the paged KV cache at work, drawn step by step in the terminal. Needs no model."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from octavo.cli.replay import BlockPicture, Picture, Replay, Token, in_turn, letters, walk_through
from octavo.cli.terminal import plain_console, stdout_console, visible
from octavo.cli.trace_replay import read_trace, trace_table

DEFAULT_NUM_BLOCKS = 16
MAX_FREE_ROWS = 8
"""Blocks that were never used are drawn up to this many; the rest is counted."""

_LEGEND = (
    "A block is a run of slots for the K and V of consecutive tokens. A block table lists a request's blocks "
    "in order. A full block is findable through the hash of everything up to its end. ref_cnt counts the "
    "tables that hold a block; at 0 it joins the free queue, findable ones at the tail, and keeps its "
    "content until it is handed out again."
)


def explain(
    *prompts: str,
    block_size: int = 4,
    num_blocks: int | None = None,
    model: str | None = None,
    trace: Path | None = None,
    plain: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show how the paged KV cache works: block tables, sharing, eviction, step by step.

    Without prompts it plays the walk-through of docs/kv-cache.md. With prompts it plays those instead, by
    the same cache code that serves requests: each arrives in turn, and the oldest finishes when room is
    needed. A letter is a token, unless --model names a model whose tokenizer is to cut the prompts. With
    --trace it replays a request trace instead, as `octavo serve --access-trace` writes it, and tells how
    many of its prompt tokens caches of several sizes would have found.

    For example:

        octavo explain "to be or not to be" "to be or not at all"
        octavo explain --model smollm2-135m "Once upon a time there was" "Once upon a time I saw"

    Args:
        prompts: Requests to play, named A, B, C and so on.
        block_size: Tokens per block; small, so that several fit on a screen.
        num_blocks: Blocks in the pool; 4 in the walk-through, else 16 if omitted; several sizes for a trace.
        model: A .gguf file or the default model's short name: use its tokenizer.
        trace: A trace to replay, one JSON object per line, with the block size in it or in --block-size.
        plain: No colours and no lines, for logs and screen readers.
    """
    console = plain_console() if plain else stdout_console()
    if trace is not None:
        rows = read_trace(trace, default_block_size=block_size)
        console.print(trace_table(rows, num_blocks, plain=plain))
        return
    if prompts:
        pool_size = DEFAULT_NUM_BLOCKS if num_blocks is None else num_blocks
        replay = Replay(num_blocks=pool_size, block_size=block_size)
        pictures = in_turn(replay, [_tokens(prompt, model) for prompt in prompts])
    else:
        pictures = walk_through()
    console.print(Text(_LEGEND, style="dim"))
    for time, picture in enumerate(pictures):
        console.print()
        console.print(draw(time, picture, plain=plain))


def draw(time: int, picture: Picture, *, plain: bool = False) -> RenderableType:
    """One moment: what happened, the blocks, the tables, the free queue and the hash map."""
    parts: list[RenderableType] = [Text.assemble((f"{time}  ", "bold cyan"), (picture.event, "bold"))]
    for block_id, prefix in picture.evicted.items():
        parts.append(Text(f"   Only now block {block_id} forgets “{prefix}”.", style="red"))
    parts.append(Padding(_block_table(picture, plain=plain), (0, 0, 0, 3)))
    parts.append(Padding(_bookkeeping(picture), (0, 0, 0, 3)))
    return Group(*parts)


def _block_table(picture: Picture, *, plain: bool) -> Table:
    table = Table(box=None if plain else box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("block", justify="right", no_wrap=True, min_width=5)
    table.add_column("tokens", no_wrap=True, overflow="ellipsis")
    table.add_column("ref_cnt", justify="right", no_wrap=True, min_width=7)
    table.add_column("held by", no_wrap=True, min_width=7)
    table.add_column("state", no_wrap=True, min_width=21)
    unused = [block for block in picture.blocks if not block.tokens]
    hidden = unused[MAX_FREE_ROWS:]
    for block in picture.blocks:
        if block in hidden:
            continue
        state, style = _state(block, picture)
        content = Text("".join(block.tokens) or "–", overflow="ellipsis", no_wrap=True)
        holders = " ".join(block.holders) or "–"
        table.add_row(str(block.block_id), content, str(block.ref_cnt), holders, state, style=style)
    if hidden:
        table.add_row("…", f"{len(hidden)} more never used", "0", "–", "free", style="dim")
    return table


def _state(block: BlockPicture, picture: Picture) -> tuple[str, str]:
    """(words, style) for one block."""
    words = []
    if block.block_id in picture.hit_blocks:
        words.append("hit")
    elif block.block_id in picture.new_blocks:
        words.append("new")
    if block.ref_cnt > 1:
        words.append("shared")
    if not block.ref_cnt:
        words.append("free")
    words.append("findable" if block.is_findable else "not findable")
    if block.ref_cnt == 0:
        return ", ".join(words), "dim"
    return ", ".join(words), "yellow" if block.ref_cnt > 1 else "green"


def _bookkeeping(picture: Picture) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column()
    tables = "   ".join(f"{name} = {' '.join(map(str, ids))}" for name, ids in picture.block_tables.items())
    grid.add_row("req_to_blocks", Text(tables or "–"))
    queue = " ".join(map(str, picture.free_queue))
    grid.add_row("free queue", Text(f"{queue}   (front first)" if queue else "empty"))
    entries = [f"{prefix} → {' '.join(map(str, ids))}" for prefix, ids in picture.hash_map.items()]
    grid.add_row("hash map", Text("\n".join(map(_shortened, entries)) or "empty"))
    grid.add_row("unfilled slots", Text(str(picture.num_unfilled_slots)))
    return grid


def _shortened(entry: str, width: int = 55) -> str:
    """The end of a long prefix, which is what its block holds."""
    return entry if len(entry) <= width else "…" + entry[-(width - 1) :]


def _tokens(prompt: str, model: str | None) -> list[Token]:
    if model is None:
        return letters(prompt)
    # A tokenizer costs a third of a second to load; plain letters need none.
    from octavo.cli.tokenizing import model_tokenizer

    tokenizer = model_tokenizer(model)
    return [
        Token(token_id, _drawable(tokenizer.token_bytes(token_id)))
        for token_id in tokenizer.encode(prompt, add_special_tokens=False)
    ]


def _drawable(token_bytes: bytes) -> str:
    """A token's text with its spaces and line ends to be seen."""
    text = token_bytes.decode("utf-8", errors="replace")
    return visible(text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥"))
