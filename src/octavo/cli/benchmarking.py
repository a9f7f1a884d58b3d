"""What `octavo bench` does once its options are read."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.bench.attention_cases import SHUFFLED_SIZES, attention_cases, shuffled_over_in_order
from octavo.bench.kernel_case import KernelCase, KernelOptions
from octavo.bench.kernels import COLUMNS, Machine, run_kernels
from octavo.bench.limits import LimitProbe, Limits, measure_limits
from octavo.bench.linear_cases import linear_cases
from octavo.bench.machine import describe_machine
from octavo.bench.noise import QUIET_SHARE, Meter, wait_until_quiet
from octavo.bench.report import Column, Report
from octavo.bench.row_cases import row_cases
from octavo.bench.serving import LATENCY_COLUMNS, THROUGHPUT_COLUMNS, latency, throughput
from octavo.bench.workloads import find_workload
from octavo.cli.session import session
from octavo.cli.terminal import stderr_console, stdout_console
from octavo.config import EngineConfig
from octavo.errors import ConfigError
from octavo.kernels.select import available_threads, choose_isa
from octavo.kernels.weight import Quantization

if TYPE_CHECKING:
    from octavo.cli.bench import Measuring, WorkloadChanges


SHUFFLED_OVER_IN_ORDER = "time with shuffled blocks over blocks in order, paired"


def report_kernels(
    *,
    formats: Sequence[str],
    ops: str,
    isa: str,
    num_threads: int | None,
    seconds: float,
    wait: float,
    json: Path | None,
) -> None:
    """Print the table of `octavo bench kernels`.

    Raises:
        ConfigError: there is no such format.
        KernelUnavailableError: the native kernels cannot run here.
        EngineError: a kernel is wrong.
    """
    options = KernelOptions(choose_isa(isa), num_threads or available_threads())
    cases = _cases(ops, [_quantization(name) for name in formats])
    report = _report("kernels", COLUMNS, options._asdict())
    _wait("kernels", wait)
    with Meter() as meter, LimitProbe(isa=options.isa, num_threads=options.num_threads) as probe:
        limits = probe.limits()
        report.limits = _limit_rates(limits)
        for result in run_kernels(cases, options, Machine(limits, probe.read_rate), seconds=seconds):
            _say(f"{result.op}, {result.size}: {result.seconds.scaled(1e6).format()} µs")
            report.add(result.as_row())
        if ops in ("all", "attention"):
            for size in SHUFFLED_SIZES:
                ratio = shuffled_over_in_order(options, size=size)
                report.add(
                    {
                        "op": "attention decode",
                        "size": f"{SHUFFLED_OVER_IN_ORDER}, {size.kv_dtype}",
                        "rate": ratio,
                    }
                )
    report.others = meter.others
    _finish(report, json)


def report_throughput(
    config: EngineConfig, workload: str, changes: "WorkloadChanges", measuring: "Measuring"
) -> None:
    """Print the table of `octavo bench throughput`.

    Raises:
        ConfigError: there is no such workload, or it does not fit the model.
    """
    chosen = changes.apply(find_workload(workload))
    _say(f"{chosen.name}: {chosen.size}")
    with session(config, quiet=False) as built:
        report = _report("throughput", THROUGHPUT_COLUMNS, dataclasses.asdict(built.config))
        row = throughput(
            built,
            chosen,
            repetitions=measuring.repetitions,
            before=lambda what: _wait(what, measuring.wait),
        )
    report.add(row)
    _finish_rows(report, measuring.json)


def report_latency(config: EngineConfig, measuring: "Measuring") -> None:
    """Print the table of `octavo bench latency`.

    Raises:
        ConfigError: the prompts do not fit the model.
    """
    with session(config, quiet=False) as built:
        report = _report("latency", LATENCY_COLUMNS, dataclasses.asdict(built.config))
        bandwidth = None
        if built.config.kernels == "native":
            limits = measure_limits(isa=built.config.isa, num_threads=built.config.num_threads)
            report.limits, bandwidth = _limit_rates(limits), limits.read
        rows = latency(
            built,
            repetitions=measuring.repetitions,
            read_bandwidth=bandwidth,
            before=lambda what: _wait(what, measuring.wait),
        )
        for row in rows:
            report.add(row)
    _finish_rows(report, measuring.json)


def _cases(ops: str, formats: Sequence[Quantization]) -> Iterator[KernelCase]:
    groups = {
        "linear": lambda: linear_cases(formats),
        "attention": attention_cases,
        "rows": row_cases,
    }
    chosen = groups.values() if ops == "all" else [groups[ops]]
    return itertools.chain.from_iterable(make() for make in chosen)


def _quantization(name: str) -> Quantization:
    try:
        return Quantization(name.upper())
    except ValueError:
        raise ConfigError(f"there is no format {name!r}; there are {', '.join(Quantization)}") from None


def _report(benchmark: str, columns: Sequence[Column], config: Mapping[str, Any]) -> Report:
    command = ["octavo", *sys.argv[1:]]
    return Report(benchmark, columns, command=command, machine=describe_machine(), config=config)


def _limit_rates(limits: Limits) -> dict[str, float]:
    return {
        "read GB/s": limits.read / 1e9,
        "integer GOP/s": limits.integer / 1e9,
        "float GFLOP/s": limits.float / 1e9,
        "round trip ns": limits.round_trip * 1e9,
    }


def _wait(what: str, seconds: float) -> None:
    share = wait_until_quiet(timeout=seconds)
    busy = f" (others take {share:.0%} of the machine)" if share > QUIET_SHARE else ""
    _say(f"{what}{busy}")


def _say(text: str) -> None:
    stderr_console().print(text, style="dim", markup=False)


def _finish_rows(report: Report, json: Path | None) -> None:
    """Take the noise from the rows, each of which was measured by itself."""
    report.others = max(row["others"] for row in report.rows)
    _finish(report, json)


def _finish(report: Report, json: Path | None) -> None:
    stdout_console().print(report.table())
    if json is not None:
        report.write(json)
        _say(f"wrote {json}")
