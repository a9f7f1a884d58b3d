"""Throughput and latency of a tiny random model: what is counted, not how fast it is."""

from dataclasses import replace

import pytest

from octavo.bench import serving
from octavo.bench.timeline import Timeline
from octavo.bench.workloads import W1, W3
from octavo.build import build
from octavo.config import EngineConfig
from octavo.errors import ConfigError

SMALL = replace(W1, num_requests=3, shared_tokens=16, prompt_tokens=4, output_tokens=5)


@pytest.fixture(scope="module")
def built(tiny_llama):
    parts = build(EngineConfig.from_options({"model": str(tiny_llama()), "num_blocks": 64, "num_threads": 1}))
    yield parts
    parts.engine.close()


def test_a_timeline_in_figures():
    timeline = Timeline(wall=4.0, token_times=[[1.0, 2.0, 4.0], [3.0]])
    assert timeline.first_tokens == [1.0, 3.0]
    assert timeline.inter_token == [1.0, 2.0]
    assert timeline.tokens_per_second == 1.0


def test_throughput_counts_every_token_and_repeats(built):
    announced = []
    row = serving.throughput(built, SMALL, repetitions=2, before=announced.append)
    assert announced == ["W1, repetition 1 of 2", "W1, repetition 2 of 2"]
    seconds, rate = row["seconds"], row["output_tokens_per_second"]
    assert seconds.num_runs == 2
    assert rate.high * seconds.low == pytest.approx(15)
    assert row["total_tokens_per_second"].high * seconds.low == pytest.approx(15 + 60)


def test_latency_has_first_token_gaps_and_prefill(built, monkeypatch):
    for name in ("W3", "W4", "W4_512"):
        monkeypatch.setattr(serving, name, replace(W3, name=name, prompt_tokens=8, output_tokens=3))
    rows = list(serving.latency(built, repetitions=1, read_bandwidth=1e9, before=lambda _: None))
    assert [row["measure"] for row in rows] == [
        "first token", "inter-token p50", "inter-token p90", "inter-token p99", "prefill 8", "prefill 8",
    ]  # fmt: skip
    assert rows[1]["of_read_bandwidth"] > 0
    assert {column.key for column in serving.LATENCY_COLUMNS} >= set(rows[4]) - {"size"}


def test_a_workload_that_does_not_fit_is_refused(built):
    too_long = replace(SMALL, prompt_tokens=built.config.max_model_len)
    with pytest.raises(ConfigError, match="raise max_model_len"):
        serving.throughput(built, too_long, repetitions=1, before=lambda _: None)


def test_tied_weights_count_once(built):
    program = built.model.program
    once = serving.step_weight_bytes(program)
    assert 0 < once <= built.model.weight_bytes
