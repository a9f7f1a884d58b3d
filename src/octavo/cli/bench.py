"""`octavo bench`: kernels, throughput and latency on this machine."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from octavo.bench.workloads import Workload
from octavo.cli.options import DEFAULTS, CacheOptions, ModelOptions, RunnerOptions, SchedulerOptions
from octavo.config import EngineConfig, IsaName
from octavo.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """How a benchmark is run and reported."""

    repetitions: int = 5
    """How often each figure is measured; the table has medians and ranges."""
    wait: float = 60.0
    """Longest wait for a quiet machine before a measurement [s]."""
    json: Path | None = None
    """Also write the results to this file, with machine, configuration and ranges."""

    def __post_init__(self) -> None:
        if self.repetitions < 1:
            raise ConfigError(f"repetitions must be at least 1, got {self.repetitions}")
        if self.wait < 0:
            raise ConfigError(f"wait must be at least 0, got {self.wait}")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadChanges:
    """Parts of a workload that are to differ."""

    num_requests: int | None = None
    """How many requests."""
    shared_tokens: int | None = None
    """Tokens that all prompts begin with."""
    prompt_tokens: int | None = None
    """Tokens of each prompt's own."""
    output_tokens: int | None = None
    """Tokens to generate for each request."""

    def apply(self, workload: Workload) -> Workload:
        """The workload with the parts that were given."""
        changed = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(workload, **changed)


MeasuringOptions = Annotated[Measuring, Parameter(name="*", group="Measuring")]
ChangeOptions = Annotated[WorkloadChanges, Parameter(name="*", group="Workload")]
_MEASURING = Measuring()
_CHANGES = WorkloadChanges()

bench = App(
    name="bench",
    help=(
        "Measure kernels, throughput and latency on this machine. A run beside busy neighbours is "
        "reported as not clean."
    ),
    help_format="plaintext",
    version_flags=[],
)


@bench.command
def kernels(
    *,
    formats: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (
        "Q4_1",
        "Q8_0",
        "F16",
    ),
    ops: Literal["all", "linear", "attention", "rows"] = "all",
    isa: IsaName = "auto",
    num_threads: int | None = None,
    seconds: float = 0.5,
    wait: float = _MEASURING.wait,
    json: Path | None = None,
) -> None:
    """Time each op beside what the machine allows, and compare its result with the reference.

    Read bandwidth and the peaks of integer and float arithmetic are measured first, with the same
    instructions and threads. An op's limit is whichever takes longer, reading its operands or computing.

    Args:
        formats: Quantisations of the linear layers.
        ops: Only some of the ops; rows are normalisation and sampling.
        isa: Instruction set; the best that the machine has if auto.
        num_threads: Threads; from affinity mask and cgroup quota if omitted.
        seconds: How long each op is repeated.
        wait: Longest wait for a quiet machine [s].
        json: Also write the results to this file.
    """
    from octavo.cli.benchmarking import report_kernels

    report_kernels(
        formats=formats, ops=ops, isa=isa, num_threads=num_threads, seconds=seconds, wait=wait, json=json
    )


@bench.command
def throughput(
    workload: str = "W1",
    *,
    changes: ChangeOptions = _CHANGES,
    measuring: MeasuringOptions = _MEASURING,
    model: ModelOptions = DEFAULTS.model,
    cache: CacheOptions = DEFAULTS.cache,
    scheduler: SchedulerOptions = DEFAULTS.scheduler,
    runner: RunnerOptions = DEFAULTS.runner,
) -> None:
    """Submit a workload's requests at once and count tokens per second until the last one ends.

    Args:
        workload: W1 is 32 requests of 256 tokens to 128; W2 shares 1,024 tokens; W3 is one stream; W4 is a
            prompt of 2,048 tokens; BD8 is 8 requests.
    """
    from octavo.cli.benchmarking import report_throughput

    config = EngineConfig(model=model, cache=cache, scheduler=scheduler, runner=runner)
    report_throughput(config, workload, changes, measuring)


@bench.command
def latency(
    *,
    measuring: MeasuringOptions = _MEASURING,
    model: ModelOptions = DEFAULTS.model,
    cache: CacheOptions = DEFAULTS.cache,
    scheduler: SchedulerOptions = DEFAULTS.scheduler,
    runner: RunnerOptions = DEFAULTS.runner,
) -> None:
    """Measure one stream alone: time to the first token, between tokens, and prefill of two lengths."""
    from octavo.cli.benchmarking import report_latency

    report_latency(EngineConfig(model=model, cache=cache, scheduler=scheduler, runner=runner), measuring)
