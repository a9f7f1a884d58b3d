"""How attention is cut into items, and how workers share them: the plan alone, compiled for the test."""

import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from native_driver import compile_driver, needs_compiler

PARTITION = 256
NUM_HEADS, NUM_KV_HEADS = 9, 3
GROUP = NUM_HEADS // NUM_KV_HEADS

pytestmark = needs_compiler


class Request(NamedTuple):
    rows: int
    before: int = 0
    shares_first_partition: bool = False


class Item(NamedTuple):
    request: int
    first_row: int
    num_rows: int
    head_begin: int
    head_end: int
    partition_begin: int
    partition_end: int

    @property
    def cost(self) -> int:
        return self.num_rows * (self.head_end - self.head_begin) * (self.partition_end - self.partition_begin)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory, "attention_items")


def items_of(driver: Path, requests: Sequence[Request], *, num_workers: int, window: int = 0) -> list[Item]:
    numbers = [NUM_HEADS, NUM_KV_HEADS, 64, window, num_workers, len(requests)]
    numbers += [int(number) for request in requests for number in request]
    text = " ".join(map(str, numbers))
    done = subprocess.run([driver], input=text, capture_output=True, text=True, check=True)
    return [Item(*map(int, line.split())) for line in done.stdout.splitlines()]


def shares(items: Sequence[Item], num_workers: int) -> list[Sequence[Item]]:
    bounds = [len(items) * worker // num_workers for worker in range(num_workers + 1)]
    return [items[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize("num_workers", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("seed", range(5))
def test_every_row_meets_each_of_its_partitions_once(driver: Path, num_workers: int, seed: int):
    rng = np.random.default_rng(seed)
    requests = []
    for _ in range(int(rng.integers(1, 8))):
        before = int(rng.integers(0, 2000))
        rows = int(rng.choice([0, 1, 5, 200]))
        requests.append(Request(rows, before, before >= PARTITION and seed % 2 == 1))
    window = 300 if seed == 2 else 0
    met: Counter[tuple[int, int, int, int]] = Counter()
    for item in items_of(driver, requests, num_workers=num_workers, window=window):
        for row in range(item.first_row, item.first_row + item.num_rows):
            for head in range(item.head_begin, item.head_end):
                for partition in range(item.partition_begin, item.partition_end):
                    met[item.request, row, head, partition] += 1
    assert set(met.values()) <= {1}
    for i, request in enumerate(requests):
        for row in range(request.rows * GROUP):
            position = request.before + row // GROUP
            first = int(request.shares_first_partition)
            if window:
                first = max(position - window + 1, 0) // PARTITION
            for partition in range(first, position // PARTITION + 1):
                assert all(met[i, row, head, partition] for head in range(NUM_KV_HEADS))


@pytest.mark.parametrize("num_workers", [2, 3, 4])
def test_decoding_requests_are_shared_out_in_runs(driver: Path, num_workers: int):
    items = items_of(driver, [Request(1, 300)] * 24, num_workers=num_workers)
    for worker, share in enumerate(shares(items, num_workers)):
        mine = {item.request for item in share}
        first, last = 24 * worker // num_workers, 24 * (worker + 1) // num_workers
        assert mine <= set(range(max(first - 1, 0), last + 1))


@pytest.mark.parametrize("num_workers", [2, 3, 4])
def test_shares_of_a_long_prompt_cost_about_the_same_and_end_with_the_short(driver: Path, num_workers: int):
    items = items_of(driver, [Request(2048)], num_workers=num_workers)
    costs = [[item.cost for item in share] for share in shares(items, num_workers)]
    totals = [sum(share) for share in costs]
    assert max(totals) < 1.15 * min(totals)
    assert all(share[-1] <= max(share) / 2 for share in costs)
