"""How workers share pieces out: the pool alone, compiled for the test."""

import subprocess
from pathlib import Path

import pytest
from native_driver import compile_driver, needs_compiler

PHASES = 300

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = ("thread_pool.cpp", "memory.cpp", "disturbance.cpp", "kv_ahead.cpp", "processor.cpp")
    return compile_driver(tmp_path_factory, "claimed_pieces", *sources)


@pytest.mark.parametrize(
    "sizes", [[5], [4, 4], [0, 7], [7, 0], [1, 0, 0, 9, 2], [0, 0, 0], [3] * 9, [40, 1, 1, 1]]
)
def test_pieces_are_handed_out_once_and_first_to_their_owners(driver: Path, sizes: list[int]):
    text = f"{len(sizes)} {PHASES} {' '.join(map(str, sizes))}"
    done = subprocess.run([driver], input=text, capture_output=True, text=True, check=True, timeout=60)
    counts, num_too_early = done.stdout.split("\n")[:2]
    assert [int(count) for count in counts.split()] == [PHASES] * sum(sizes)
    assert int(num_too_early) == 0
