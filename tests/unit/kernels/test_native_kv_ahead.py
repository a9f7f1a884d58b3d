"""What workers fetch of K and V while linear layers compute: the walk alone, compiled for the test."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from native_driver import compile_driver, needs_compiler

STEP = 128  # KvAhead::kStep
NUM_BLOCKS, BLOCK_SIZE, LAYER = 40, 16, 2

pytestmark = needs_compiler


@dataclass
class Request:
    seq_len: int
    blocks: list[int]
    num_rows: int = 1
    deepest_pass: int = -1


@dataclass
class Pass:
    """Partitions that the rows of the step have in common."""

    rows: list[int]
    partition_begin: int
    partition_end: int


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory, "kv_ahead_lines", "kv_ahead.cpp")


def block_bytes(num_kv_heads: int, head_dim: int, block_size: int = BLOCK_SIZE) -> int:
    return num_kv_heads * (2 * block_size * head_dim + 8 * block_size)  # int8 and its scales


def fetched(
    driver: Path,
    requests: Sequence[Request],
    *,
    passes: Sequence[Pass] = (),
    window: int = 0,
    num_workers: int = 1,
    heads: tuple[int, int] = (3, 64),
    block_size: int = BLOCK_SIZE,
) -> list[list[int]]:
    """Blocks that each worker asks for, in its order; all of them whole, and of the op's layer."""
    width = max(len(request.blocks) for request in requests)
    starts, rows = [0], []
    for request in requests:
        starts.append(starts[-1] + request.num_rows)
    tables = [block for request in requests for block in request.blocks + [0] * (width - len(request.blocks))]
    shared = []
    for one in passes:
        shared += [len(rows), len(one.rows), one.partition_begin, one.partition_end]
        rows += one.rows
    arrays = (
        [LAYER, window, num_workers, NUM_BLOCKS, block_size, *heads],
        starts,
        [request.seq_len for request in requests],
        tables,
        shared,
        rows,
        [request.deepest_pass for request in requests],
    )
    text = "\n".join(" ".join(map(str, (len(array), *array))) for array in arrays)
    done = subprocess.run([driver], input=text, capture_output=True, text=True, check=True)
    return [
        blocks_at([int(word) for word in line.split()], block_bytes(*heads, block_size))
        for line in done.stdout.splitlines()
    ]


def blocks_at(offsets: Sequence[int], size: int) -> list[int]:
    """Blocks that begin at these offsets into the pool, whose steps all come in order."""
    steps = size // STEP
    assert len(offsets) % steps == 0
    blocks = []
    for i in range(0, len(offsets), steps):
        block = offsets[i] // size - LAYER * NUM_BLOCKS
        first = (LAYER * NUM_BLOCKS + block) * size
        assert offsets[i : i + steps] == [first + step * STEP for step in range(steps)]
        assert 0 <= block < NUM_BLOCKS
        blocks.append(block)
    return blocks


def test_blocks_of_each_request_up_to_its_length(driver: Path):
    requests = [Request(33, [7, 3, 9]), Request(16, [NUM_BLOCKS - 1]), Request(1, [5])]
    assert fetched(driver, requests) == [[7, 3, 9, NUM_BLOCKS - 1, 5]]


@pytest.mark.parametrize("num_workers", [2, 3, 5])
def test_workers_share_the_blocks_evenly(driver: Path, num_workers: int):
    requests = [Request(16 * 9, list(range(1, 10))), Request(16 * 10, list(range(20, 30)))]
    shares = fetched(driver, requests, num_workers=num_workers)
    assert [block for share in shares for block in share] == [*range(1, 10), *range(20, 30)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_worker_fetches_for_the_requests_that_it_attends_for(driver: Path):
    requests = [Request(32, [2 * i, 2 * i + 1]) for i in range(8)]
    assert fetched(driver, requests, num_workers=2) == [list(range(8)), list(range(8, 16))]


def test_requests_of_many_rows_or_none_are_left_out(driver: Path):
    requests = [
        Request(32, [1, 2], num_rows=9),
        Request(32, [3, 4], num_rows=0),
        Request(32, [5, 6], num_rows=8),
    ]
    assert fetched(driver, requests) == [[5, 6]]


def test_blocks_of_a_pass_come_once_and_first(driver: Path):
    """Two requests have the first partition, of 16 blocks, in common, and one nothing."""
    common = list(range(1, 17))
    requests = [
        Request(16 * 17, [*range(20, 37)]),
        Request(16 * 16 + 1, [*common, 17], deepest_pass=0),
        Request(16 * 18, [*common, 18, 19], deepest_pass=0),
    ]
    passes = [Pass([1, 2], 0, 1)]
    assert fetched(driver, requests, passes=passes) == [[*common, *range(20, 37), 17, 18, 19]]


def test_each_worker_fetches_a_pass_of_many_rows_whole(driver: Path):
    common = list(range(1, 17))
    requests = [Request(16 * 16 + 1, [*common, 17], deepest_pass=0) for _ in range(32)]
    first, second = fetched(driver, requests, passes=[Pass(list(range(32)), 0, 1)], num_workers=2)
    assert first[:16] == second[:16] == common
    assert len(first) == len(second) == 32  # the block of its own of each of 16 requests


@pytest.mark.parametrize("num_workers", [2, 3, 5, 40])
def test_workers_share_a_pass_of_few_rows(driver: Path, num_workers: int):
    common = list(range(1, 17))
    requests = [Request(16 * 16 + 1, [*common, 17], deepest_pass=0) for _ in range(2)]
    shares = fetched(driver, requests, passes=[Pass([0, 1], 0, 1)], num_workers=num_workers)
    assert {block for share in shares for block in share} == {*common, 17}
    assert max(map(len, shares)) <= -(-16 // num_workers) + 2


def test_a_pass_that_ends_within_a_block(driver: Path):
    """A partition of 256 tokens of a block of 384: whoever has a share of it fetches the block."""
    requests = [Request(384 + 1, [3, 4 + i], deepest_pass=0) for i in range(2)]
    shares = fetched(driver, requests, passes=[Pass([0, 1], 0, 1)], num_workers=2, block_size=384)
    assert {block for share in shares for block in share} == {3, 4, 5}


def test_a_window_hides_older_blocks_and_passes(driver: Path):
    requests = [Request(16 * 18, list(range(1, 19)), num_rows=2, deepest_pass=0)]
    [blocks] = fetched(driver, requests, passes=[Pass([0], 0, 1)], window=32)
    assert blocks == [16, 17, 18]  # the first row, at position 286, sees tokens from 255 on


def test_no_more_than_a_cache_holds(driver: Path):
    requests = [Request(16 * NUM_BLOCKS, list(range(NUM_BLOCKS))) for _ in range(100)]
    heads = (32, 128)
    shares = fetched(driver, requests, num_workers=2, heads=heads)
    size = block_bytes(*heads)
    assert all(2**23 - size < len(share) * size <= 2**23 for share in shares)


def test_what_a_block_has_beyond_whole_steps_is_left_out(driver: Path):
    assert block_bytes(1, 1) == STEP + 32
    assert fetched(driver, [Request(64, [1, 2, 3, 4])], heads=(1, 1)) == [[1, 2, 3, 4]]
