"""Tables and lines about a run."""

import io

from rich.console import Console

from octavo.cli.streaming import run_requests
from octavo.cli.summary import memory_line, request_table, speed_line, summary
from octavo.kv.spec import KVCacheSpec
from octavo.sampling_params import SamplingParams

SPEC = KVCacheSpec(block_size=8, num_layers=2, num_kv_heads=2, head_dim=64, dtype="float16")


def finished_run(make_engine, *prompt_lengths: int):
    engine, kv = make_engine("yes")
    for number, length in enumerate(prompt_lengths, start=1):
        engine.add_request(str(number), list(range(length)), SamplingParams(temperature=0))
    ids = [str(number) for number in range(1, len(prompt_lengths) + 1)]
    return run_requests(engine, kv, ids, on_update=lambda _: None)


def drawn(renderable) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def test_the_table_names_cached_tokens_blocks_and_endings(make_engine):
    rows = drawn(request_table(finished_run(make_engine, 20, 20))).splitlines()
    assert rows[-2].split() == ["2", "20", "16", "4", "0", "1", "3", "stop"]
    assert rows[-3].split() == ["1", "20", "–", "4", "0", "1", "2", "stop"]


def test_long_tables_lose_their_middle(make_engine):
    assert "… 3 more …" in drawn(request_table(finished_run(make_engine, 115)))


def test_memory_is_counted_in_blocks_and_bytes(make_engine):
    line = memory_line(finished_run(make_engine, 20), spec=SPEC, num_blocks=64)
    assert line == (
        "KV cache: at most 3 of 64 blocks in use (24 KiB of 512 KiB), 0 of them shared; "
        "unfilled slots: 1 (under 8 per sequence)"
    )


def test_speed_is_given(make_engine):
    assert "first token after" in speed_line(finished_run(make_engine, 20))


def test_everything_fits_eighty_columns(make_engine):
    text = drawn(summary(finished_run(make_engine, 60, 60), spec=SPEC, num_blocks=64))
    assert max(map(len, text.splitlines())) <= 80
