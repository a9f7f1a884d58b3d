"""`octavo doctor`: what it finds, and what it says when something is broken."""

import io

import numpy as np
from rich.console import Console

from octavo.cli import checkup, self_test
from octavo.cli.checkup import Check
from octavo.cli.main import run
from octavo.errors import KernelUnavailableError
from octavo.kernels.select import NativeSupport
from octavo.runner.kernels import KernelChoice


def test_a_broken_check_exits_with_1_and_the_way_out(monkeypatch, capsys):
    broken = [Check("octavo", "1.0"), Check("kernels", "the native library is missing", "run `make setup`")]
    monkeypatch.setattr(checkup, "checkup", lambda: broken)
    assert run(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "✗   kernels" in captured.out
    assert captured.err == "error: kernels: run `make setup`\n"


def test_a_sound_machine_exits_with_0(monkeypatch, capsys):
    monkeypatch.setattr(checkup, "checkup", lambda: [Check("octavo", "1.0")])
    assert run(["doctor"]) == 0
    assert capsys.readouterr().err == ""


def test_everything_is_looked_at(monkeypatch):
    monkeypatch.setattr(checkup, "native_support", lambda: NativeSupport(("avx2", "generic")))
    monkeypatch.setattr(checkup, "largest_difference", lambda _isa: 1e-6)
    checks = checkup.checkup()
    names = [check.name for check in checks]
    assert names == [
        "octavo", "libraries", "processor", "kernels", "threads", "memory", "huge pages",
        "self-test avx2", "self-test generic", "model",
    ]  # fmt: skip
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(checkup.report(checks))
    assert max(map(len, console.file.getvalue().splitlines())) <= 80


def test_missing_kernels_little_memory_and_wrong_results_have_a_way_out():
    broken = checkup._native_check(NativeSupport((), problem="the native library x.so does not load"))
    assert (broken.finding, bool(broken.way_out)) == ("the native library x.so does not load", True)
    assert checkup._memory_check(2**20).way_out
    assert not checkup._memory_check(2**40).way_out
    assert [check.way_out != "" for check in checkup._self_tests(("a",), lambda _isa: 0.5)] == [True]
    assert [check.way_out != "" for check in checkup._self_tests(("a",), lambda _isa: 1e-7)] == [False]


def test_kernels_that_do_not_load_are_reported():
    def fail(_isa: str) -> float:
        raise KernelUnavailableError("no such instruction set")

    [check] = checkup._self_tests(("avx9",), fail)
    assert (check.finding, bool(check.way_out)) == ("no such instruction set", True)


def test_the_self_test_model_has_logits_worth_comparing():
    logits = self_test._logits(KernelChoice("reference", "numpy", num_threads=1))
    assert logits.shape == (20, 64)
    assert np.isfinite(logits).all()
    assert np.abs(logits).max() > 0.1
