"""Choosing an instruction set and a number of threads."""

import os
from pathlib import Path

import pytest

from octavo.errors import KernelUnavailableError
from octavo.kernels.native_library import LIBRARY_NAME, NativeLibrary, load_library
from octavo.kernels.select import available_isas, available_threads, choose_isa


def test_generic_code_runs_everywhere_and_comes_last():
    assert available_isas()[-1] == "generic"
    assert set(available_isas()) <= set(load_library().isas("compiled"))


def test_auto_is_the_best_and_a_choice_is_kept():
    assert choose_isa("auto") == available_isas()[0]
    for isa in available_isas():
        assert choose_isa(isa) == isa


def test_a_choice_that_cannot_run_names_those_that_can():
    with pytest.raises(KernelUnavailableError, match=r"altivec cannot run here \(it was not built\)"):
        choose_isa("altivec")


def test_threads_follow_the_affinity_mask(tmp_path: Path):
    assert available_threads(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("maximum", "expected"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 64), ("garbage", 64)]
)
def test_threads_follow_the_quota_of_cgroup_v2(tmp_path: Path, monkeypatch, maximum: str, expected: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu.max").write_text(maximum + "\n")
    assert available_threads(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("250000", 3), ("-1", 64), ("0", 64)])
def test_threads_follow_the_quota_of_cgroup_v1(tmp_path: Path, monkeypatch, quota: str, expected: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert available_threads(tmp_path) == expected


def test_a_library_that_is_none_says_how_to_build_it(tmp_path: Path):
    path = tmp_path / LIBRARY_NAME
    path.write_bytes(b"not a library")
    with pytest.raises(KernelUnavailableError, match=r"does not load.*pip install"):
        NativeLibrary(path)


def test_a_library_that_is_missing_says_where_it_was_sought(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("octavo.kernels.__path__", [str(tmp_path)])
    with pytest.raises(KernelUnavailableError, match=rf"is not in {tmp_path}.*pip install"):
        load_library.__wrapped__()
