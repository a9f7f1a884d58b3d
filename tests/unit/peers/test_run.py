"""The driver and the protocol, with an adapter that computes nothing."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.bench.workloads import W1

ADAPTER = """
import sys, time
sys.path.insert(0, {peers!r})
from protocol import Recorder, serve, take_stdout
answers = take_stdout()
print("an engine chats on stdout")
def run(prompts, output_tokens):
    if output_tokens == 13:
        raise ValueError("no luck")
    if output_tokens == 14:
        time.sleep(60)
    recorder = Recorder(len(prompts))
    for _ in range(output_tokens):
        for request in range(len(prompts)):
            recorder.add(request)
    return recorder.times()
serve(answers, {{"name": "nothing", "version": "0", "settings": {{}}}}, run)
"""


@pytest.fixture
def engine(tmp_path, peers_on_the_path, monkeypatch):
    import engine_process

    (tmp_path / "adapter_nothing.py").write_text(ADAPTER.format(peers=str(peers_on_the_path)))
    monkeypatch.setattr(engine_process, "FOLDER", tmp_path)
    command = engine_process.EngineCommand(sys.executable, "nothing", ())
    process = engine_process.EngineProcess(command, threads=1, settle=0.0, log=tmp_path / "log")
    yield process
    process.close()


def is_stopped(process_id: int) -> bool:
    """Whether it stops within a while: a signal takes effect when the process next runs."""
    for _ in range(1000):
        if Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        time.sleep(0.01)
    return False


def test_an_engine_answers_and_is_stopped_in_between(engine, tmp_path):
    from run import figures

    small = replace(W1, num_requests=2, prompt_tokens=3, output_tokens=4)
    for _ in range(2):
        assert is_stopped(engine.process_id)
        answer = engine.run(small.prompts(0), small.output_tokens, timeout=30)
        row = figures(answer, small)
        assert row["tokens_per_second"] > 0
    assert "an engine chats on stdout" in (tmp_path / "log").read_text()


DRIVER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{peers!r}]
import engine_process
engine_process.FOLDER = Path({folder!r})
command = engine_process.EngineCommand(sys.executable, "nothing", ())
engine = engine_process.EngineProcess(command, threads=1, settle=0.0, log=Path({folder!r}) / "log")
print(engine.process_id, flush=True)
time.sleep(60)
"""


def test_a_stopped_engine_ends_with_a_driver_that_is_killed(tmp_path, peers_on_the_path):
    (tmp_path / "adapter_nothing.py").write_text(ADAPTER.format(peers=str(peers_on_the_path)))
    script = DRIVER.format(peers=str(peers_on_the_path), folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as driver:
        process_id = int(driver.stdout.readline())
        assert is_stopped(process_id)
        driver.kill()
    assert has_ended(process_id)


def has_ended(process_id: int) -> bool:
    """Whether it ends within a while; one that nobody has waited for yet has ended, too."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_resident_memory_is_counted(engine):
    from engine_process import resident_bytes

    assert resident_bytes(engine.process_id) > 2**20


def test_a_failure_names_the_engine_and_leaves_it_usable(engine):
    from engine_process import EngineError

    with pytest.raises(EngineError, match="nothing: ValueError: no luck"):
        engine.run([[1]], 13, timeout=30)
    assert engine.run([[1]], 1, timeout=30)["tokens"] == [1]


def test_an_engine_that_hangs_is_ended(engine):
    from engine_process import EngineError

    engine_process = sys.modules["engine_process"]
    engine_process.CLOSE_SECONDS = 0.1
    with pytest.raises(EngineError, match="no answer in time"):
        engine.run([[1]], 14, timeout=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(engine.process_id, signal.SIG_DFL)
    with pytest.raises(EngineError, match="has ended"):
        engine.run([[1]], 1, timeout=1)


def test_too_few_tokens_are_an_error():
    from engine_process import EngineError
    from run import figures

    workload = replace(W1, num_requests=2, output_tokens=4)
    answer = {"wall": 1.0, "first": [0.1, 0.2], "end": [0.5, 1.0], "tokens": [4, 3]}
    with pytest.raises(EngineError, match=r"\[3, 4\] tokens per request instead of 4"):
        figures(answer, workload)


def test_figures_of_a_job():
    from run import figures

    workload = replace(W1, num_requests=2, output_tokens=5)
    answer = {"wall": 2.0, "first": [0.5, 1.0], "end": [1.5, 2.0], "tokens": [5, 5]}
    assert figures(answer, workload) == {
        "wall": 2.0,
        "tokens_per_second": 5.0,
        "first": 0.5,
        "first_median": 0.75,
        "first_max": 1.0,
        "decode_tokens_per_second": 4.0,
    }


def test_the_shared_prefix_leaves_every_prompt_a_token():
    from adapter_llamacpp import batches, common_prefix, prompt_rows

    assert common_prefix([[1, 2, 3], [1, 2, 4]]) == 2
    assert common_prefix([[1, 2], [1, 2, 4]]) == 1
    assert common_prefix([[5], [6]]) == 0
    assert prompt_rows([7, 8, 9], 1, 4) == [(8, 1, 4, False), (9, 2, 4, True)]
    assert [len(batch) for batch in batches([(0, 0, 0, False)] * 2050)] == [2048, 2]


def test_time_is_counted_from_submission():
    from protocol import Recorder

    recorder = Recorder(2)
    time.sleep(0.001)
    recorder.add(1, 3)
    times = recorder.times()
    assert times["tokens"] == [0, 3]
    assert times["first"][0] is None
    assert 0.001 <= times["first"][1] == times["end"][1] <= times["wall"]
