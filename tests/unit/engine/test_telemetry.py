"""What an engine counts and times, over a clock that the script moves."""

import pytest
from engine_fakes import EOS, make_engine, run_to_end

from octavo.engine.abort_cause import AbortCause
from octavo.engine.activity import ActivityKind
from octavo.engine.histogram import Histogram
from octavo.errors import EngineDeadError
from octavo.sampling_params import SamplingParams
from octavo.sched.request import FinishReason

PROMPT = list(range(10, 30))


class Time:
    """A clock that stands still unless told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Observed:
    """An engine whose every sampled token takes half a second, and what it says of ended requests."""

    def __init__(self, token_s=0.5, **options):
        self.time = Time()
        self.ended = {}

        def script(request_id, position):
            self.time.now += token_s
            return EOS if position == 9 else ord("a") + position

        fake = make_engine(script, clock=self.time, **options)
        self.engine, self.kv, self.telemetry = fake.engine, fake.kv, fake.engine.telemetry
        self.telemetry.on_finished = lambda finished: self.ended.update({finished.request_id: finished})

    def add(self, request_id, prompt=PROMPT, **params):
        self.engine.add_request(request_id, prompt, SamplingParams(**params))


def sums(snapshot):
    """Name to (observations, total) of every histogram that saw anything."""
    return {
        name: (sum(counts.counts), counts.total)
        for name, counts in snapshot.histograms.items()
        if sum(counts.counts)
    }


def test_a_bucket_includes_its_upper_bound():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts() == ((1.0, 2.0), (2, 2, 1), 7.5)


def test_the_phases_of_one_request():
    observed = Observed()
    observed.add("a", max_tokens=4)
    observed.time.now += 2.0
    run_to_end(observed.engine)

    finished = observed.ended["a"]
    times = (finished.arrived_at, finished.scheduled_at, finished.first_token_at, finished.last_token_at)
    assert times == (100.0, 102.0, 102.5, 104.0)
    assert finished.ended_at == 104.0
    assert (finished.num_prompt_tokens, finished.num_cached_tokens, finished.num_output_tokens) == (20, 0, 4)
    assert list(finished.finish_reasons) == [FinishReason.LENGTH]
    assert finished.abort_cause is None
    assert len(finished.block_hashes) == 5
    assert sums(observed.telemetry.snapshot) == {
        "time_to_first_token_seconds": (1, 2.5),
        "inter_token_latency_seconds": (3, 1.5),
        "request_time_per_output_token_seconds": (1, 0.5),
        "e2e_request_latency_seconds": (1, 4.0),
        "request_queue_time_seconds": (1, 2.0),
        "request_inference_time_seconds": (1, 2.0),
        "request_prefill_time_seconds": (1, 0.5),
        "request_decode_time_seconds": (1, 1.5),
        "request_prompt_tokens": (1, 20),
        "request_generation_tokens": (1, 4),
        "request_params_max_tokens": (1, 4),
        "request_params_n": (1, 1),
        "request_num_preemptions": (1, 0),
        "iteration_tokens_total": (4, 23),
        "step_seconds": (4, 2.0),
    }


def test_counts_of_a_second_request_that_finds_the_prefix():
    observed = Observed()
    for name in ("a", "b"):
        observed.add(name, max_tokens=2)
        run_to_end(observed.engine)
    counts = observed.telemetry.snapshot.counts
    assert (counts.num_prompt_tokens, counts.num_cached_prompt_tokens) == (40, 16)
    assert (counts.num_query_tokens, counts.num_hit_tokens) == (40, 16)
    assert counts.num_generation_tokens == observed.engine.num_output_tokens == 4
    assert counts.num_steps == observed.engine.core.num_steps
    assert observed.ended["b"].num_cached_tokens == 16


def test_continuations_are_told_together_when_the_last_has_ended():
    observed = Observed()
    observed.add("a", n=3, max_tokens=20)
    run_to_end(observed.engine)
    assert list(observed.ended) == ["a"]
    assert observed.ended["a"].num_output_tokens == 30
    assert observed.telemetry.snapshot.finished == {"stop": 3}


def test_what_runs_what_waits_and_what_is_wasted():
    observed = Observed(max_num_seqs=1)
    observed.add("a", max_tokens=8)
    observed.add("b", list(range(100, 109)), max_tokens=8)
    observed.engine.step()
    snapshot = observed.telemetry.snapshot
    assert (snapshot.num_running, snapshot.num_waiting, snapshot.num_unfilled_slots) == (1, 1, 0)
    assert snapshot.blocks.num_active == 5
    observed.engine.step()
    assert observed.telemetry.snapshot.num_unfilled_slots == 3
    run_to_end(observed.engine)
    assert observed.telemetry.snapshot.blocks.num_active == 0
    assert snapshot.num_running == 1, "a snapshot never changes"


@pytest.mark.parametrize("cause", list(AbortCause))
def test_an_abort_is_counted_by_its_cause(cause):
    observed = Observed()
    observed.add("a", n=2, max_tokens=8)
    observed.engine.step()
    observed.engine.abort("a", cause)
    observed.telemetry.publish()
    assert observed.telemetry.snapshot.aborted == {cause.value: 1}
    assert observed.telemetry.snapshot.finished == {"abort": 2}
    assert observed.ended["a"].abort_cause is cause
    assert "e2e_request_latency_seconds" not in sums(observed.telemetry.snapshot)


def test_a_stop_string_is_a_stop():
    observed = Observed()
    observed.add("a", stop=["cd"], max_tokens=9)
    run_to_end(observed.engine)
    assert observed.telemetry.snapshot.finished == {"stop": 1}
    assert observed.ended["a"].num_output_tokens == 4


def test_a_failing_request_is_counted_as_an_error():
    observed = Observed(runner_options={"request_errors": {"a": "NaN in its logits"}})
    observed.add("a")
    run_to_end(observed.engine)
    assert observed.telemetry.snapshot.finished == {"error": 1}
    assert observed.ended["a"].first_token_at is None


def test_requests_under_way_when_the_engine_dies_are_aborted():
    observed = Observed(runner_options={"failing_steps": [1, 2, 3]})
    observed.add("a")
    observed.engine.step()
    observed.engine.step()
    with pytest.raises(EngineDeadError):
        observed.engine.step()
    observed.telemetry.engine_died()
    snapshot = observed.telemetry.snapshot
    assert snapshot.counts.num_failed_steps == 2
    assert snapshot.aborted == {"engine_dead": 1}


def test_preemptions_are_counted_and_a_first_token_only_once():
    observed = Observed(num_blocks=8, max_num_seqs=4)
    for index in range(3):
        observed.add(str(index), list(range(100 * index, 100 * index + 8)), max_tokens=9)
    run_to_end(observed.engine)
    snapshot = observed.telemetry.snapshot
    assert snapshot.counts.num_preemptions > 0
    assert sum(finished.num_preemptions for finished in observed.ended.values()) == (
        snapshot.counts.num_preemptions
    )
    assert sums(snapshot)["time_to_first_token_seconds"][0] == 3
    assert sums(snapshot)["inter_token_latency_seconds"][0] == 24


def test_the_step_under_way_can_be_seen_from_outside():
    seen = []
    fake = make_engine(lambda request_id, position: seen.append(fake.engine.telemetry.activity) or ord("a"))
    fake.engine.add_request("a", PROMPT, SamplingParams(max_tokens=1))
    fake.engine.step()
    (activity,) = seen
    assert (activity.kind, activity.num_requests, activity.num_tokens) == (ActivityKind.STEP, 1, 20)
    assert fake.engine.telemetry.activity.kind is ActivityKind.BETWEEN_STEPS


def test_a_record_is_published_with_news_and_every_50_ms():
    observed = Observed(token_s=0.02)
    engine, telemetry = observed.engine, observed.telemetry
    observed.add("a", max_tokens=6, ignore_eos=True)
    seen = []
    while engine.has_unfinished_requests:
        before = telemetry.snapshot
        engine.step()
        seen.append(telemetry.snapshot is not before)
    # The first token, 60 ms after it, and the end.
    assert seen == [True, False, False, True, False, True]


def test_at_rest_the_last_step_is_seen_at_once():
    observed = Observed(token_s=0.02)
    observed.add("a", max_tokens=6, ignore_eos=True)
    for _ in range(2):
        observed.engine.step()
    before = observed.telemetry.snapshot
    observed.telemetry.rest()
    assert observed.telemetry.snapshot.counts.num_steps == before.counts.num_steps + 1
