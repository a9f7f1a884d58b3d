"""Every metric by name, and that each shows what was counted."""

import pytest
from engine_fakes import make_engine, run_to_end
from prometheus_client.parser import text_string_to_metric_families

from octavo.engine.lifecycle import EngineState
from octavo.engine.telemetry import HISTOGRAM_BOUNDS
from octavo.engine.watchdog import Stall, StallReason
from octavo.sampling_params import SamplingParams
from octavo.server.metrics import METRICS, Kind, Readings, ServedEngine, make_registry, render

SERVED = ServedEngine("m", "1.2", "native", "avx2", 2, 16, 64, "float16", True)

# vLLM's names where the meaning is the same: dashboards and routers ask for them, so a change breaks theirs.
NAMES = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_params_max_tokens",
    "vllm:request_params_n",
    "vllm:request_num_preemptions",
    "vllm:iteration_tokens_total",
    "octavo:kv_blocks",
    "octavo:kv_unfilled_slots",
    "octavo:kv_block_copies_total",
    "octavo:kv_block_evictions_total",
    "octavo:steps_total",
    "octavo:steps_failed_total",
    "octavo:step_seconds",
    "octavo:requests_aborted_total",
    "octavo:requests_refused_total",
    "octavo:http_requests_total",
    "octavo:engine_state",
    "octavo:engine_stalled",
    "octavo:engine_stalls_total",
    "octavo:records_dropped_total",
    "octavo:build_info",
}


def scrape(**readings):
    """Sample name and labels in order of their names, but for the model's, to number."""
    registry = make_registry(lambda: Readings(**{"served": SERVED, "state": EngineState.READY, **readings}))
    body, media_type = render(registry, "")
    assert media_type.startswith("text/plain")
    samples = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not family.name.startswith(("process_", "python_")):
                assert labels.pop("model_name") == "m"
            samples[sample.name, *labels.values()] = sample.value
    return samples


@pytest.fixture(scope="module")
def snapshot():
    """After two requests with one prompt, one after the other."""
    fake = make_engine(lambda request_id, position: ord("a"))
    for name in ("a", "b"):
        fake.engine.add_request(name, list(range(10, 30)), SamplingParams(max_tokens=5))
        run_to_end(fake.engine)
    return fake.engine.telemetry.snapshot


def test_the_names():
    assert {spec.exposed_name for spec in METRICS} == NAMES
    assert len(METRICS) == len(NAMES)


def test_every_histogram_of_the_engine_is_exposed():
    assert {spec.histogram for spec in METRICS if spec.kind is Kind.HISTOGRAM} == set(HISTOGRAM_BOUNDS)


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        (("vllm:num_requests_running",), 0),
        (("vllm:kv_cache_usage_perc",), 0.0),
        (("vllm:cache_config_info", "16", "float16", "True", "64"), 1),
        (("vllm:prefix_cache_queries_total",), 40),
        (("vllm:prefix_cache_hits_total",), 16),
        (("vllm:prompt_tokens_total",), 40),
        (("vllm:prompt_tokens_cached_total",), 16),
        (("vllm:generation_tokens_total",), 10),
        (("vllm:request_success_total", "length"), 2),
        (("vllm:request_success_total", "abort"), 0),
        (("vllm:time_to_first_token_seconds_count",), 2),
        (("vllm:inter_token_latency_seconds_count",), 8),
        (("vllm:request_prompt_tokens_sum",), 40),
        (("vllm:request_prompt_tokens_bucket", "16.0"), 0),
        (("vllm:request_prompt_tokens_bucket", "32.0"), 2),
        (("vllm:request_prompt_tokens_bucket", "+Inf"), 2),
        (("vllm:iteration_tokens_total_sum",), 20 + 4 + 4 + 4),
        (("octavo:kv_blocks", "free"), 64),
        (("octavo:kv_blocks", "active"), 0),
        (("octavo:kv_blocks", "cached"), 8),
        (("octavo:kv_unfilled_slots",), 0),
        (("octavo:steps_total",), 10),
        (("octavo:requests_aborted_total", "client_gone"), 0),
        (("octavo:engine_state", "ready"), 1),
        (("octavo:engine_state", "dead"), 0),
        (("octavo:build_info", "avx2", "native", "2", "1.2"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_scrape_shows_what_was_counted(snapshot, sample, value):
    assert scrape(snapshot=snapshot)[sample] == value


def test_stalls_refusals_and_answers():
    samples = scrape(
        snapshot=None,
        stall=Stall(StallReason.STEP_HANGS, 70.0, "step 3 is computing"),
        num_stalls={StallReason.STEP_HANGS: 2},
        http_requests={("POST", "/v1/completions", 200): 7},
        refused={"overloaded": 3},
        num_dropped_records=4,
    )
    assert samples["octavo:engine_stalled", "step_hangs"] == 1
    assert samples["octavo:engine_stalled", "paused"] == 0
    assert samples["octavo:engine_stalls_total", "step_hangs"] == 2
    assert samples["octavo:http_requests_total", "POST", "/v1/completions", "200"] == 7
    assert samples["octavo:requests_refused_total", "overloaded"] == 3
    assert samples["octavo:records_dropped_total",] == 4


def test_while_the_model_is_loaded_there_is_a_state_and_no_numbers():
    samples = scrape(state=EngineState.STARTING, snapshot=None)
    assert samples["octavo:engine_state", "starting"] == 1
    assert not [name for name, *_ in samples if name.startswith("vllm:num_requests")]


def test_openmetrics_is_spoken_to_those_who_ask():
    registry = make_registry(lambda: Readings(SERVED, EngineState.READY, None))
    body, media_type = render(registry, "application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
