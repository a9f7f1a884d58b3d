"""`RequestSpans`: OpenTelemetry spans of requests that have ended. Needs the extra ``octavo[otel]``.

A request is one span with its phases as events, a child of the caller's span if it sent a ``traceparent``.
Where spans go to is configured as OpenTelemetry says, by environment variables (``OTEL_…``).
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octavo.engine.request_record import FinishedRequest
from octavo.errors import ConfigError
from octavo.sched.request import FinishReason
from octavo.server.request_log import cause_of_end

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_NS = 1_000_000_000


def make_provider(version: str) -> "TracerProvider":
    """A provider that exports by OTLP, configured by the environment.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError(
            "traces need OpenTelemetry, which is not installed; pip install 'octavo[otel]'"
        ) from None
    resource = Resource.create({"service.name": "octavo", "service.version": version})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class RequestSpans:
    """Makes a span of every request that has ended.

    Args:
        provider: where spans go to; closed with this.
        model_name: as clients see it.
        clock: the engine's [s].
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        provider: "TracerProvider",
        model_name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("octavo")
        self._model_name = model_name
        self._epoch = wall_clock() - clock()

    def write(self, finished: FinishedRequest) -> None:
        """Export one."""
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        span = self._tracer.start_span(
            f"{_operation(finished)} {self._model_name}",
            context=TraceContextTextMapPropagator().extract(dict(finished.trace_headers or {})),
            kind=SpanKind.SERVER,
            attributes=self._attributes(finished),
            start_time=self._ns(finished.arrived_at),
        )
        for name, moment in (
            ("scheduled", finished.scheduled_at),
            ("first_token", finished.first_token_at),
            ("last_token", finished.last_token_at),
        ):
            if moment is not None:
                span.add_event(name, timestamp=self._ns(moment))
        if FinishReason.ERROR in finished.finish_reasons:
            span.set_status(Status(StatusCode.ERROR, "the generation failed"))
        span.end(self._ns(finished.ended_at))

    def close(self) -> None:
        """Export what is left."""
        self._provider.shutdown()

    def _ns(self, moment: float) -> int:
        return round((self._epoch + moment) * _NS)

    def _attributes(self, finished: FinishedRequest) -> dict[str, Any]:
        params = finished.params
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": _operation(finished),
            "gen_ai.request.model": self._model_name,
            "gen_ai.response.model": self._model_name,
            "gen_ai.response.id": finished.request_id,
            "gen_ai.request.id": finished.request_id,
            "gen_ai.request.temperature": params.temperature,
            "gen_ai.request.top_p": params.top_p,
            "gen_ai.request.n": params.n,
            "gen_ai.request.max_tokens": params.max_tokens,
            "gen_ai.response.finish_reasons": [reason.value for reason in finished.finish_reasons],
            "gen_ai.usage.input_tokens": finished.num_prompt_tokens,
            "gen_ai.usage.output_tokens": finished.num_output_tokens,
            "gen_ai.usage.cache_read.input_tokens": finished.num_cached_tokens,
            "gen_ai.latency.e2e": finished.ended_at - finished.arrived_at,
            "octavo.cause": cause_of_end(finished),
            "octavo.preemptions": finished.num_preemptions,
        }
        if finished.scheduled_at is not None:
            attributes["gen_ai.latency.time_in_queue"] = finished.scheduled_at - finished.arrived_at
        if finished.first_token_at is not None:
            attributes["gen_ai.latency.time_to_first_token"] = finished.first_token_at - finished.arrived_at
        return {name: value for name, value in attributes.items() if value is not None}


def _operation(finished: FinishedRequest) -> str:
    """As the conventions call it; the ids of the server's requests begin with the API's prefix."""
    return "chat" if finished.request_id.startswith("chatcmpl-") else "text_completion"
