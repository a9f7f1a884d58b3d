"""Choosing an instruction set and a number of threads."""

import os
from pathlib import Path

import pytest

from octavo.errors import KernelUnavailableError
from octavo.kernels import select
from octavo.kernels.native_library import LIBRARY_NAME, NativeLibrary, load_library
from octavo.kernels.select import available_threads, choose_isa, native_support


def test_generic_code_runs_everywhere_and_comes_last():
    support = native_support()
    assert support.isas[-1] == "generic"
    assert set(support.isas) <= set(support.compiled_isas)
    assert support.problem == ""


def test_without_a_library_there_is_a_reason(monkeypatch):
    def fail():
        raise KernelUnavailableError("it has interface version 2; rebuild it")

    monkeypatch.setattr(select, "load_library", fail)
    assert native_support() == ((), (), "it has interface version 2; rebuild it")
    with pytest.raises(KernelUnavailableError, match="it has interface version 2; rebuild it"):
        choose_isa("auto")


def test_auto_is_the_best_and_a_choice_is_kept():
    assert choose_isa("auto") == native_support().isas[0]
    for isa in native_support().isas:
        assert choose_isa(isa) == isa


def test_a_choice_that_cannot_run_names_those_that_can():
    with pytest.raises(KernelUnavailableError, match=r"altivec cannot run here \(it was not built\)"):
        choose_isa("altivec")


@pytest.fixture
def threads_on(tmp_path: Path, monkeypatch):
    """``threads_on(files)``: threads on a machine of 64 processors with these files in proc and cgroup."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))

    def count(files: dict[str, str]) -> int:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return available_threads(proc=tmp_path / "proc", cgroup_root=tmp_path / "cgroup")

    return count


def test_threads_follow_the_affinity_mask(tmp_path: Path):
    assert available_threads(proc=tmp_path, cgroup_root=tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("maximum", "expected"),
    [("150000 100000", 2), ("50000 100000", 1), ("0 100000", 64), ("max 100000", 64), ("garbage", 64)],
)
def test_threads_follow_the_quota_of_cgroup_v2(threads_on, maximum: str, expected: int):
    assert threads_on({"proc/self/cgroup": "0::/", "cgroup/cpu.max": maximum}) == expected


@pytest.mark.parametrize(("quota", "expected"), [("250000", 3), ("-1", 64), ("0", 64)])
def test_threads_follow_the_quota_of_cgroup_v1(threads_on, quota: str, expected: int):
    files = {"proc/self/cgroup": "4:cpu,cpuacct:/", "cgroup/cpu/cpu.cfs_quota_us": quota}
    assert threads_on({**files, "cgroup/cpu/cpu.cfs_period_us": "100000"}) == expected


def test_the_tightest_quota_on_the_way_up_counts(threads_on):
    files = {"proc/self/cgroup": "0::/slice/app", "cgroup/slice/cpu.max": "300000 100000"}
    assert threads_on({**files, "cgroup/slice/app/cpu.max": "max 100000"}) == 3
    assert threads_on({"cgroup/slice/app/cpu.max": "200000 100000"}) == 2


def test_a_library_that_is_none_says_how_to_build_it(tmp_path: Path):
    path = tmp_path / LIBRARY_NAME
    path.write_bytes(b"not a library")
    with pytest.raises(KernelUnavailableError, match=r"does not load.*make setup"):
        NativeLibrary(path)


def test_a_library_that_is_missing_says_where_it_was_sought(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("octavo.kernels.__path__", [str(tmp_path)])
    with pytest.raises(KernelUnavailableError, match=rf"is not in {tmp_path}.*make setup"):
        load_library.__wrapped__()
