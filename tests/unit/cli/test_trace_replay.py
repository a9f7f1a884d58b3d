"""Traces are replayed over the real cache: known traces have known hits."""

import json

import pytest

from octavo.cli.main import run as run_cli
from octavo.cli.trace_replay import Found, read_trace, replay_trace
from octavo.errors import ConfigError


def row(timestamp, num_tokens, hash_ids, **more):
    return {
        "timestamp": timestamp,
        "input_length": num_tokens,
        "output_length": 1,
        "hash_ids": hash_ids,
        **more,
    }


@pytest.fixture
def trace(tmp_path):
    def write(*rows):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
        return path

    return write


def test_rows_come_in_order_of_time_without_blocks_that_are_not_full(trace):
    rows = read_trace(trace(row(5, 9, [1, 2, 3]), row(1, 8, [1, 2])), default_block_size=4)
    assert [(each.timestamp, each.num_tokens, len(each.block_hashes)) for each in rows] == [
        (1, 8, 2),
        (5, 9, 2),
    ]


def test_a_shared_prefix_is_found_but_never_the_last_token(trace):
    path = trace(row(0, 9, [1, 2]), row(1, 9, [1, 2]), row(2, 8, [1, 2]), row(3, 9, [7, 2]))
    rows = read_trace(path, default_block_size=4)
    assert replay_trace(rows, 100) == Found(100, 8 + 4 + 0, 0)


def test_a_small_cache_forgets_the_oldest_and_skips_what_it_cannot_hold(trace):
    path = trace(
        *[row(t, 9, ids) for t, ids in enumerate(([1, 2], [3, 4], [1, 2]))], row(9, 40, list(range(10)))
    )
    rows = read_trace(path, default_block_size=4)
    assert replay_trace(rows, 100).num_hit_tokens == 8
    assert replay_trace(rows, 3) == Found(3, 0, 1)


def test_what_was_served_stands_beside_what_is_replayed(trace, capsys):
    path = trace(
        row(0, 9, [1, 2], block_size=4, cached_tokens=0), row(1, 9, [1, 2], block_size=4, cached_tokens=4)
    )
    assert run_cli(["explain", "--trace", str(path), "--plain"]) == 0
    out = capsys.readouterr().out
    assert "2 requests, 18 prompt tokens, blocks of 4" in out
    lines = [line.split() for line in out.splitlines()]
    assert lines[-2][2:5] == ["8", "44.4", "%"]
    assert lines[-1] == ["as", "served", "4", "22.2", "%"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "line 1 is no row of a trace"),
        ("[1]", "line 1 is no row of a trace"),
        ('{"timestamp": 0, "input_length": 9}', "line 1 is no row of a trace"),
        ('{"timestamp": 0, "input_length": 9, "hash_ids": [9999999999999999999999]}', "no row of a trace"),
        ('{"timestamp": 0, "input_length": 9, "hash_ids": [1]}', "give the trace's --block-size"),
        ('{"timestamp": 0, "input_length": 0, "hash_ids": []}', "cannot have 0 hash_ids"),
        ('{"timestamp": 0, "input_length": 9, "hash_ids": [], "block_size": 4}', "prefix caching off"),
        ("", "must have rows"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, line, message):
    path = tmp_path / "trace"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=message):
        read_trace(path, default_block_size=4)


def test_different_block_sizes_cannot_be_compared(trace):
    path = trace(row(0, 4, [1], block_size=4), row(1, 8, [1], block_size=8))
    with pytest.raises(ConfigError, match="all of one block_size"):
        read_trace(path, default_block_size=4)
