from octavo.bench import noise
from octavo.bench.noise import (
    CpuSample,
    Meter,
    ProcessTimes,
    others_share,
    read_busy_seconds,
    read_processes,
    tree_seconds,
    wait_until_quiet,
)


def samples(*values):
    """A reader that returns these in order."""
    iterator = iter(values)
    return lambda _roots: next(iterator)


def test_others_are_what_is_busy_and_not_ours():
    start, end = CpuSample(10.0, 100.0, 5.0), CpuSample(12.0, 103.0, 7.0)
    assert others_share(start, end, num_cpus=2) == 0.25


def test_rounding_never_makes_a_negative_share():
    assert others_share(CpuSample(0, 0, 0), CpuSample(1, 1, 1.01), num_cpus=2) == 0.0


def test_descendants_count_once_even_in_a_cycle():
    processes = {
        1: ProcessTimes(0, 1.0),
        2: ProcessTimes(1, 2.0),
        3: ProcessTimes(2, 4.0),
        4: ProcessTimes(0, 8.0),
        5: ProcessTimes(5, 16.0),
    }
    assert tree_seconds([1, 5], processes) == 23.0
    assert tree_seconds([99], processes) == 0.0


def test_reading_proc(tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "_ticks_per_second", lambda: 100)
    (tmp_path / "stat").write_text("cpu  100 10 50 9000 800 5 5 30 0 0\ncpu0 1 1\n")
    assert read_busy_seconds(proc=tmp_path) == 2.0
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a) b) S 3 {' '.join(map(str, range(5, 53)))}\n")
    (tmp_path / "8").mkdir()  # ended while we looked
    [(process_id, times)] = read_processes(proc=tmp_path).items()
    assert (process_id, times.parent) == (7, 3)
    assert times.seconds == (14 + 15 + 16 + 17) / 100  # utime, stime, cutime, cstime as proc(5) numbers them


def test_the_gate_at_eight_per_cent(monkeypatch):
    monkeypatch.setattr(noise, "num_cpus", lambda: 1)
    for busy, clean in ((8.0, True), (8.1, False)):
        with Meter([1], sample=samples(CpuSample(0, 0, 0), CpuSample(100, busy, 0))) as meter:
            pass
        assert meter.is_clean is clean


def test_waiting_ends_with_the_first_quiet_window(monkeypatch):
    monkeypatch.setattr(noise, "num_cpus", lambda: 1)
    reader = samples(CpuSample(0, 0, 0), CpuSample(1, 1, 0), CpuSample(2, 1.01, 0))
    slept = []
    share = wait_until_quiet(timeout=60, roots=[1], sample=reader, sleep=slept.append)
    assert round(share, 6) == 0.01
    assert slept == [1.0, 1.0]


def test_waiting_gives_up_and_says_how_busy_it_is(monkeypatch):
    monkeypatch.setattr(noise, "num_cpus", lambda: 1)
    reader = samples(*(CpuSample(t, 0.5 * t, 0) for t in range(10)))
    assert wait_until_quiet(timeout=3, roots=[1], sample=reader, sleep=lambda _: None) == 0.5
