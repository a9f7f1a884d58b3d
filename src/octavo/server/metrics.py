"""`/metrics`: what the engine and the HTTP side have counted, in Prometheus' format.

`METRICS` lists every metric, with vLLM's name where the meaning is the same, so that dashboards and routers
made for it work. Nothing is counted here: a scrape reads the engine's last snapshot and takes no lock.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from octavo.engine.abort_cause import AbortCause
from octavo.engine.lifecycle import EngineState
from octavo.engine.snapshot import EngineSnapshot
from octavo.engine.watchdog import Stall, StallReason
from octavo.sched.request import FinishReason

Values = Iterable[tuple[Sequence[str], float]]
"""Label values and a number, for each combination that there is."""


class ServedEngine(NamedTuple):
    """What never changes about the engine that is served."""

    model_name: str
    version: str
    kernels: str
    isa: str
    num_threads: int
    block_size: int
    num_blocks: int
    kv_dtype: str
    enable_prefix_caching: bool


class Readings(NamedTuple):
    """Everything a scrape reads from."""

    served: ServedEngine
    state: EngineState
    snapshot: EngineSnapshot | None
    """``None`` while the model is being loaded."""
    stall: Stall | None = None
    num_stalls: Mapping[StallReason, int] = {}
    http_requests: Mapping[tuple[str, str, int], int] = {}
    """By method, path and status."""
    refused: Mapping[str, int] = {}
    """By reason."""
    num_dropped_records: int = 0


class Kind(StrEnum):
    """What Prometheus calls the type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class MetricSpec(NamedTuple):
    """One metric. ``read`` gives nothing while there is nothing to read yet."""

    name: str
    kind: Kind
    documentation: str
    labels: Sequence[str] = ()
    """Beside ``model_name``."""
    read: Callable[[Readings], Values] = lambda _: ()
    histogram: str = ""
    """Its name in the snapshot, of histograms."""

    @property
    def exposed_name(self) -> str:
        """As it is scraped; a histogram has ``_bucket``, ``_sum`` and ``_count`` behind it."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


def _one(read: Callable[[EngineSnapshot], float]) -> Callable[[Readings], Values]:
    """A number without labels, from the snapshot."""
    return lambda readings: () if readings.snapshot is None else [((), read(readings.snapshot))]


def _each(
    names: Iterable[str], read: Callable[[EngineSnapshot], Mapping[str, int]]
) -> Callable[[Readings], Values]:
    """A number per name, 0 included, from the snapshot."""
    known = tuple(names)

    def values(readings: Readings) -> Values:
        if readings.snapshot is None:
            return ()
        counted = read(readings.snapshot)
        return [((name,), counted.get(name, 0)) for name in known]

    return values


def _blocks(snapshot: EngineSnapshot) -> Mapping[str, int]:
    blocks = snapshot.blocks
    return {
        "free": blocks.num_free,
        "active": blocks.num_active,
        "cached": blocks.num_cached,
        "shared": blocks.num_shared,
        "pinned": blocks.num_pinned,
    }


def _cache_config(readings: Readings) -> Values:
    served = readings.served
    labels = (served.block_size, served.num_blocks, served.kv_dtype, served.enable_prefix_caching)
    return [([str(label) for label in labels], 1)]


def _build(readings: Readings) -> Values:
    served = readings.served
    return [((served.version, served.kernels, served.isa, str(served.num_threads)), 1)]


def _state(readings: Readings) -> Values:
    return [((state.value,), float(readings.state is state)) for state in EngineState]


def _stalled(readings: Readings) -> Values:
    reason = None if readings.stall is None else readings.stall.reason
    return [((known.value,), float(reason is known)) for known in StallReason]


def _stalls(readings: Readings) -> Values:
    return [((reason.value,), readings.num_stalls.get(reason, 0)) for reason in StallReason]


def _http(readings: Readings) -> Values:
    return [
        ((method, path, str(status)), number)
        for (method, path, status), number in sorted(readings.http_requests.items())
    ]


def _refused(readings: Readings) -> Values:
    return [((reason,), number) for reason, number in sorted(readings.refused.items())]


def _gauge(
    name: str, documentation: str, read: Callable[[Readings], Values], labels: Sequence[str] = ()
) -> MetricSpec:
    return MetricSpec(name, Kind.GAUGE, documentation, labels, read)


def _counter(
    name: str, documentation: str, read: Callable[[Readings], Values], labels: Sequence[str] = ()
) -> MetricSpec:
    return MetricSpec(name, Kind.COUNTER, documentation, labels, read)


def _histogram(name: str, documentation: str, *, prefix: str = "vllm") -> MetricSpec:
    return MetricSpec(f"{prefix}:{name}", Kind.HISTOGRAM, documentation, histogram=name)


METRICS: tuple[MetricSpec, ...] = (
    _gauge("vllm:num_requests_running", "Sequences that hold blocks.", _one(lambda s: s.num_running)),
    _gauge(
        "vllm:num_requests_waiting",
        "Sequences that wait for admission, preempted ones included.",
        _one(lambda s: s.num_waiting),
    ),
    _gauge("vllm:kv_cache_usage_perc", "Share of the blocks in use, 0 to 1.", _one(lambda s: s.blocks.usage)),
    _gauge(
        "vllm:cache_config_info",
        "The KV cache; num_gpu_blocks is vLLM's name for the number of blocks.",
        _cache_config,
        ("block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching"),
    ),
    _counter(
        "vllm:prefix_cache_queries",
        "Tokens looked for in the prefix cache, at first admissions.",
        _one(lambda s: s.counts.num_query_tokens),
    ),
    _counter(
        "vllm:prefix_cache_hits",
        "Tokens found in the prefix cache, at first admissions.",
        _one(lambda s: s.counts.num_hit_tokens),
    ),
    _counter(
        "vllm:num_preemptions",
        "Sequences that gave up their blocks for others.",
        _one(lambda s: s.counts.num_preemptions),
    ),
    _counter(
        "vllm:prompt_tokens",
        "Tokens of prompts that were computed to their end, cached ones included.",
        _one(lambda s: s.counts.num_prompt_tokens),
    ),
    _counter(
        "vllm:prompt_tokens_cached",
        "Tokens of those prompts that were found in the prefix cache.",
        _one(lambda s: s.counts.num_cached_prompt_tokens),
    ),
    _counter("vllm:generation_tokens", "Tokens generated.", _one(lambda s: s.counts.num_generation_tokens)),
    _counter(
        "vllm:request_success",
        "Sequences that ended, by reason.",
        _each((reason.value for reason in FinishReason), lambda s: s.finished),
        ("finished_reason",),
    ),
    _histogram("time_to_first_token_seconds", "From the arrival of a request to its first token."),
    _histogram("inter_token_latency_seconds", "Between two tokens of a sequence."),
    _histogram(
        "request_time_per_output_token_seconds", "Decode time per token after the first, per sequence."
    ),
    _histogram("e2e_request_latency_seconds", "From arrival to the end."),
    _histogram("request_queue_time_seconds", "From arrival to the first step that computes something of it."),
    _histogram("request_inference_time_seconds", "From that step to the last token."),
    _histogram("request_prefill_time_seconds", "From that step to the first token."),
    _histogram("request_decode_time_seconds", "From the first token to the last."),
    _histogram("request_prompt_tokens", "Length of prompts."),
    _histogram("request_generation_tokens", "Length of outputs."),
    _histogram("request_params_max_tokens", "The parameter max_tokens."),
    _histogram("request_params_n", "The parameter n."),
    _histogram("request_num_preemptions", "Preemptions per sequence."),
    _histogram("iteration_tokens_total", "Tokens computed per step."),
    _gauge(
        "octavo:kv_blocks",
        "Blocks: free and active ones add up to all; cached, shared and pinned ones are among either.",
        _each(("free", "active", "cached", "shared", "pinned"), _blocks),
        ("state",),
    ),
    _gauge(
        "octavo:kv_unfilled_slots",
        "Token slots that running sequences hold and have no token for: all the waste there is.",
        _one(lambda s: s.num_unfilled_slots),
    ),
    _counter(
        "octavo:kv_block_copies",
        "Blocks copied because somebody was to write into a shared one.",
        _one(lambda s: s.blocks.num_copies),
    ),
    _counter(
        "octavo:kv_block_evictions",
        "Findable blocks handed out again.",
        _one(lambda s: s.blocks.num_evictions),
    ),
    _counter("octavo:steps", "Steps computed.", _one(lambda s: s.counts.num_steps)),
    _counter("octavo:steps_failed", "Steps rolled back.", _one(lambda s: s.counts.num_failed_steps)),
    _histogram("step_seconds", "Time of a step in the runner.", prefix="octavo"),
    _counter(
        "octavo:requests_aborted",
        "Requests ended before they were done, by cause.",
        _each((cause.value for cause in AbortCause), lambda s: s.aborted),
        ("cause",),
    ),
    _counter(
        "octavo:requests_refused", "HTTP requests answered with an error, by reason.", _refused, ("reason",)
    ),
    _counter(
        "octavo:http_requests",
        "HTTP requests answered, by method, path and status.",
        _http,
        ("method", "path", "status"),
    ),
    _gauge("octavo:engine_state", "1 for the state the engine is in.", _state, ("state",)),
    _gauge("octavo:engine_stalled", "1 while work makes no progress, by reason.", _stalled, ("reason",)),
    _counter("octavo:engine_stalls", "Times that work made no progress, by reason.", _stalls, ("reason",)),
    _counter(
        "octavo:records_dropped",
        "Ended requests missing in the log and the trace, because writing did not keep up.",
        lambda readings: [((), readings.num_dropped_records)],
    ),
    _gauge(
        "octavo:build_info",
        "What runs.",
        _build,
        ("version", "kernels", "isa", "num_threads"),
    ),
)
"""Every metric beside those of the process."""


class EngineCollector(Collector):
    """Makes Prometheus' families of what can be read now."""

    def __init__(self, readings: Callable[[], Readings]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:  # type: ignore[explicit-override]
        """One family per entry of `METRICS`, those without values included."""
        readings = self._readings()
        for spec in METRICS:
            yield _family(spec, readings)

    def describe(self) -> list[Metric]:
        """Nothing: names are fixed, and need not be found by a scrape at start."""
        return []


def make_registry(readings: Callable[[], Readings]) -> CollectorRegistry:
    """A registry with the engine's metrics and those of the process."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(readings))
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The body of a scrape and its media type, as the scraper's ``Accept`` header asks for."""
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def _family(spec: MetricSpec, readings: Readings) -> Metric:
    model_name = readings.served.model_name
    labels = ["model_name", *spec.labels]
    if spec.kind is Kind.HISTOGRAM:
        family = HistogramMetricFamily(spec.name, spec.documentation, labels=labels)
        if readings.snapshot is not None:
            bounds, counts, total = readings.snapshot.histograms[spec.histogram]
            names = [*(str(bound) for bound in bounds), "+Inf"]
            family.add_metric([model_name], list(zip(names, accumulate(counts), strict=True)), total)
        return family
    kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
    simple = kind(spec.name, spec.documentation, labels=labels)
    for values, number in spec.read(readings):
        simple.add_metric([model_name, *values], number)
    return simple
