"""Spans of requests that have ended."""

import subprocess
import sys

import pytest
from finished_requests import finished_request
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from octavo.errors import ConfigError
from octavo.sched.request import FinishReason
from octavo.server import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spans_of(*requests):
    """What the exporter gets; its clock is 1,000 s ahead of the engine's."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = tracing.RequestSpans(provider, "m", clock=lambda: 0.0, wall_clock=lambda: 1000.0)
    for request in requests:
        spans.write(request)
    finished = exporter.get_finished_spans()
    spans.close()
    return finished


def test_a_span_has_the_times_and_the_counts_of_its_request():
    (span,) = spans_of(finished_request())
    assert span.name == "chat m"
    assert (span.start_time, span.end_time) == (1_100_000_000_000, 1_102_500_000_000)
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("scheduled", 1_100_250_000_000),
        ("first_token", 1_101_000_000_000),
        ("last_token", 1_102_500_000_000),
    ]
    attributes = span.attributes
    assert attributes["gen_ai.usage.input_tokens"] == 40
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 16
    assert attributes["gen_ai.request.max_tokens"] == 4
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.latency.time_to_first_token"] == 1.0
    assert span.status.is_unset


def test_the_callers_span_is_the_parent():
    (child, root) = spans_of(finished_request(trace_headers={"traceparent": PARENT}), finished_request())
    assert f"{child.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{child.parent.span_id:016x}" == "b7ad6b7169203331"
    assert root.parent is None


@pytest.mark.parametrize("garbage", ["", "00-xyz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_traceparent_that_is_none_is_ignored(garbage):
    (span,) = spans_of(finished_request(trace_headers={"traceparent": garbage}))
    assert span.parent is None


def test_a_failed_request_is_an_error_and_has_no_times_that_it_did_not_reach():
    failed = finished_request(
        finish_reasons=[FinishReason.ERROR], first_token_at=None, last_token_at=None, request_id="cmpl-2"
    )
    (span,) = spans_of(failed)
    assert span.name == "text_completion m"
    assert not span.status.is_ok
    assert [event.name for event in span.events] == ["scheduled"]
    assert "gen_ai.latency.time_to_first_token" not in span.attributes


def test_without_the_extra_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'octavo\[otel\]'"):
        tracing.make_provider("1")


def test_nothing_is_imported_unless_it_is_asked_for():
    code = (
        "import sys, octavo.server.tracing; sys.exit(any(m.startswith('opentelemetry') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
