"""When a process counts as disturbed by others: the rule alone, compiled for the test."""

import subprocess
from pathlib import Path

import pytest
from native_driver import compile_driver, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory, "disturbance_notes")


def answers(driver: Path, notes: list[tuple[int, int]]) -> list[tuple[bool, bool]]:
    """(whether it was due, whether it goes on) for each (preemptions since the start, time [ms])."""
    text = "\n".join(f"{preemptions} {time}" for preemptions, time in notes)
    done = subprocess.run([driver], input=text, capture_output=True, text=True, check=True)
    return [tuple(word == "1" for word in line.split()) for line in done.stdout.splitlines()]


def test_a_few_preemptions_are_no_disturbance(driver: Path):
    notes = [(10, 1000), (15, 1100), (20, 1200), (34, 1300)]  # up to 140 a second
    assert answers(driver, notes) == [(True, False)] * 4


def test_many_are_one_until_a_tenth_of_a_second_has_been_quiet(driver: Path):
    notes = [(0, 1000), (40, 1100), (41, 1150), (42, 1199), (43, 1200), (43, 1300)]
    assert answers(driver, notes) == [
        (True, False),
        (True, True),
        (False, True),
        (False, True),
        (True, False),
        (True, False),
    ]


def test_a_rate_counts_over_the_time_since_it_was_looked_at(driver: Path):
    assert answers(driver, [(0, 1000), (400, 11_000), (800, 12_000)]) == [
        (True, False),
        (True, False),
        (True, True),
    ]
