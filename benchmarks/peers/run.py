"""Octavo beside other engines on the same work, in turn, in one run.

    python benchmarks/peers/run.py --work W1,W2,W3,W4 --reps 5 --octavo-kv-dtype float16 int8 \\
        --llamacpp-python PYTHON --llamacpp-model FILE.gguf [FILE.gguf …] \\
        --openvino-python PYTHON --openvino-model FOLDER [FOLDER …] \\
        --vllm-python PYTHON --vllm-model FOLDER --vllm-dtype float32 bfloat16

Every engine is loaded once, in a process and with an interpreter of its own. Within a repetition all
engines get the same prompts, one engine after another (each repetition begins with the next one); whoever
does not run is stopped by SIGSTOP. Before each measurement the machine has to be quiet; one during which
others took more than 8 % of it is kept, marked, and repeated with fresh tokens. Records are appended to a
file as JSON lines; the table is markdown.
"""

import argparse
import datetime
import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from engine_process import EngineCommand, EngineError, EngineProcess, resident_bytes
from summary import markdown

from octavo.bench.machine import describe_machine
from octavo.bench.noise import Meter, wait_until_quiet
from octavo.bench.serving import WARM_UP
from octavo.bench.workloads import Workload, find_workload
from octavo.config import CacheConfig

RETRY_OFFSET = 100
"""From one attempt's repetition number to the next one's, so that tokens are fresh."""


class Plan(NamedTuple):
    """What is measured, and how patiently."""

    workloads: Sequence[Workload]
    repetitions: int
    attempts: int
    wait: float
    timeout: float


class Log:
    """Appends records to a file and keeps them for the table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.records: list[dict[str, Any]] = []

    def add(self, kind: str, **values: Any) -> None:
        record = {"record": kind, "started": self._started, **values}
        self.records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def engine_commands(arguments: argparse.Namespace) -> Iterator[EngineCommand]:
    """The adapters that the command line asks for, Octavo first."""
    if not arguments.no_octavo:
        for kv_dtype in arguments.octavo_kv_dtype:
            options = ("--model", arguments.octavo_model, "--kv-dtype", kv_dtype)
            yield EngineCommand(sys.executable, "octavo", options)
    for name in ("llamacpp", "openvino", "vllm"):
        python, models = getattr(arguments, f"{name}_python"), getattr(arguments, f"{name}_model")
        if bool(python) != bool(models):
            raise SystemExit(f"run.py: --{name}-python and --{name}-model go together")
        for model in models:
            if name != "vllm":
                yield EngineCommand(python, name, ("--model", model))
                continue
            for dtype in arguments.vllm_dtype:
                yield EngineCommand(python, name, ("--model", model, "--dtype", dtype))


def measure_all(engines: Sequence[EngineProcess], plan: Plan, log: Log) -> None:
    """Every workload on every engine, repetition by repetition."""
    alive = list(engines)
    for repetition in range(plan.repetitions):
        first = repetition % len(alive)
        order = alive[first:] + alive[:first]
        for workload in plan.workloads:
            for engine in order:
                if engine not in alive:
                    continue
                try:
                    if engine.name.startswith("octavo") and workload.name == "W3":
                        measure_limits(engine, repetition, plan, log)
                    measure(engine, workload, repetition, plan, log)
                except EngineError as error:
                    print(f"  left out from here on: {error}", flush=True)
                    log.add("failure", engine=engine.name, work=workload.name, error=str(error))
                    alive.remove(engine)
        if not alive:
            return


def measure(engine: EngineProcess, workload: Workload, repetition: int, plan: Plan, log: Log) -> None:
    """One engine, one workload, once; again with fresh tokens while others disturb it."""
    for attempt in range(plan.attempts):
        prompts = workload.prompts(repetition + RETRY_OFFSET * attempt)
        wait_until_quiet(timeout=plan.wait)
        with Meter() as meter:
            answer = engine.run(prompts, workload.output_tokens, timeout=plan.timeout)
        record = {
            "engine": engine.name,
            "work": workload.name,
            "repetition": repetition,
            "attempt": attempt,
            "others": round(meter.others, 4),
            "clean": meter.is_clean,
            "rss_bytes": resident_bytes(engine.process_id),
            **figures(answer, workload),
        }
        log.add("run", **record)
        print(
            f"{workload.name:7} {repetition + 1}.{attempt + 1}  {engine.name:36} {record['wall']:8.2f} s "
            f"{record['tokens_per_second']:8.1f} tok/s  TTFT {record['first']:7.3f} s  "
            f"others {meter.others:4.0%}{'' if meter.is_clean else '  NOT CLEAN'}",
            flush=True,
        )
        if meter.is_clean:
            return


def measure_limits(engine: EngineProcess, repetition: int, plan: Plan, log: Log) -> None:
    """The machine's read bandwidth and peaks, through Octavo's adapter, before what is set beside them."""
    wait_until_quiet(timeout=plan.wait)
    with Meter() as meter:
        limits = engine.run([], 0, timeout=plan.timeout)["limits"]
    log.add(
        "limits",
        engine=engine.name,
        repetition=repetition,
        limits=limits,
        others=round(meter.others, 4),
        clean=meter.is_clean,
    )


def figures(answer: dict[str, Any], workload: Workload) -> dict[str, Any]:
    """What the times of a job amount to.

    Raises:
        EngineError: a request did not get exactly the tokens it asked for.
    """
    counts = answer["tokens"]
    if any(count != workload.output_tokens for count in counts):
        raise EngineError(
            f"{workload.name}: {sorted(set(counts))} tokens per request instead of {workload.output_tokens}"
        )
    first, end = answer["first"], answer["end"]
    decoding = [after - before for before, after in zip(first, end, strict=True)]
    row = {
        "wall": answer["wall"],
        "tokens_per_second": sum(counts) / answer["wall"],
        "first": first[0],
        "first_median": statistics.median(first),
        "first_max": max(first),
    }
    if workload.output_tokens > 1:
        rates = [(workload.output_tokens - 1) / seconds for seconds in decoding]
        row["decode_tokens_per_second"] = statistics.median(rates)
    row |= {key: answer[key] for key in ("cached_tokens", "round_trip") if key in answer}
    return row


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", default="W1,W2,W3,W4", help="workloads, see octavo.bench.workloads")
    parser.add_argument("--reps", type=int, default=5, help="repetitions")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every engine")
    parser.add_argument("--attempts", type=int, default=3, help="tries for a clean measurement")
    parser.add_argument("--wait", type=float, default=120.0, help="longest wait for a quiet machine [s]")
    parser.add_argument("--timeout", type=float, default=900.0, help="of one measurement [s]")
    parser.add_argument("--settle", type=float, default=5.0, help="rest of each engine after loading [s]")
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"), help="appended to")
    parser.add_argument("--table", type=Path, help="also write the table here")
    parser.add_argument("--logs", type=Path, default=Path(), help="folder for the engines' own output")
    parser.add_argument("--no-octavo", action="store_true", help="peers alone")
    parser.add_argument("--octavo-model", default="smollm2-135m")
    parser.add_argument("--octavo-kv-dtype", nargs="+", default=[CacheConfig().kv_dtype])
    for name in ("llamacpp", "openvino", "vllm"):
        parser.add_argument(f"--{name}-python", help="interpreter that has it")
        parser.add_argument(f"--{name}-model", nargs="+", default=[])
    parser.add_argument("--vllm-dtype", nargs="+", default=["float32"])
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # engines are closed on the way
    plan = Plan(
        [find_workload(name) for name in arguments.work.split(",")],
        arguments.reps,
        arguments.attempts,
        arguments.wait,
        arguments.timeout,
    )
    log = Log(arguments.results)
    log.add("machine", machine=describe_machine(), threads=arguments.threads)
    with ExitStack() as stack:
        engines = []
        for command in engine_commands(arguments):
            print(f"loading {command.adapter} {' '.join(command.arguments)}", flush=True)
            path = arguments.logs / f"peers-{command.adapter}.log"
            engine = EngineProcess(command, threads=arguments.threads, settle=arguments.settle, log=path)
            stack.callback(engine.close)
            log.add("engine", engine=engine.name, version=engine.version, settings=engine.settings)
            engine.run(WARM_UP.prompts(0), WARM_UP.output_tokens, timeout=plan.timeout)
            engines.append(engine)
        if not engines:
            raise SystemExit("run.py: no engine was named; see --help")
        measure_all(engines, plan, log)
    table = markdown(log.records)
    print(f"\n{table}", end="")
    if arguments.table:
        arguments.table.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
