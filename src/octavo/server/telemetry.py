"""`ServerTelemetry`: what a server counts and writes down, and where a scrape finds it."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from octavo.engine.async_engine import AsyncEngine
from octavo.server.access_trace import AccessTrace
from octavo.server.config import ServerConfig
from octavo.server.http_counts import HttpCounts
from octavo.server.metrics import Readings, ServedEngine, make_registry
from octavo.server.request_log import LogLines, RequestLog, RequestWriter
from octavo.server.tracing import RequestSpans, make_provider


class ServerTelemetry:
    """One per server.

    Args:
        engine: whose numbers are shown.
        served: what never changes about it.
        request_log: which writes down its requests that have ended.

    Attributes:
        http: counts what is answered.
        registry: what a scrape reads.
    """

    def __init__(self, engine: AsyncEngine, served: ServedEngine, request_log: RequestLog) -> None:
        self.http = HttpCounts()
        self.registry: CollectorRegistry = make_registry(self.readings)
        self._engine = engine
        self._served = served
        self._request_log = request_log

    def readings(self) -> Readings:
        """Everything as it is now."""
        engine = self._engine
        return Readings(
            self._served,
            engine.state,
            engine.snapshot,
            engine.stall,
            engine.num_stalls,
            self.http.requests,
            self.http.refused,
            self._request_log.num_dropped,
        )


def make_request_log(config: ServerConfig, served: ServedEngine) -> RequestLog:
    """The log that a server's configuration asks for.

    Raises:
        ConfigError: the trace file cannot be written, or OpenTelemetry is not installed.
    """
    writers: list[RequestWriter] = [LogLines()]
    if config.otel:
        writers.append(RequestSpans(make_provider(served.version), served.model_name))
    if config.access_trace is not None:
        writers.append(AccessTrace(Path(config.access_trace), served.block_size))
    return RequestLog(writers)
