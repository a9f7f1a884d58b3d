"""What a busy neighbour costs: throughput while other processes use the same processors.

    .venv/bin/python benchmarks/busy_neighbour.py --reps 5

Throughput should keep about the share of the processors that a neighbour leaves. Situations take turns.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from octavo.bench.machine import processor_name
from octavo.bench.noise import wait_until_quiet
from octavo.bench.spread import Spread
from octavo.bench.timeline import run_prompts
from octavo.build import build
from octavo.config import EngineConfig
from octavo.engine.engine import Engine

WORK = {"one stream, 32 → 128": (1, 32, 128), "8 × 128 → 64": (8, 128, 64)}
PERIOD = 0.01  # seconds of a neighbour that is busy for a part of them


def be_busy(share: float) -> None:
    """Keep one processor busy for a share of the time, for ever."""
    while True:
        start = time.perf_counter()
        while time.perf_counter() - start < share * PERIOD:
            pass
        time.sleep((1 - share) * PERIOD)


def random_prompts(rng: random.Random, number: int, length: int) -> list[list[int]]:
    return [[rng.randrange(100, 40_000) for _ in range(length)] for _ in range(number)]


def make_engine(arguments: argparse.Namespace) -> Engine:
    options = {"model": arguments.model, "num_threads": arguments.threads, "kv_cache_memory": "256MiB"}
    return build(EngineConfig.from_options(options)).engine


def be_an_engine(arguments: argparse.Namespace) -> None:
    """Generate for ever, as a second server would; one line for each round."""
    engine, rng = make_engine(arguments), random.Random(1)
    while True:
        timeline = run_prompts(engine, random_prompts(rng, *WORK["8 × 128 → 64"][:2]), 64)
        print(timeline.tokens_per_second, flush=True)


@contextmanager
def neighbours(*commands: list[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen([sys.executable, __file__, *command], stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(2.0 if commands else 0.0)  # for a second engine to load
        yield


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--be-busy", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--be-an-engine", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be_busy is not None:
        be_busy(arguments.be_busy)
    if arguments.be_an_engine:
        be_an_engine(arguments)
    compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    num_cpus = arguments.threads
    engine_command = ["--be-an-engine", "--model", arguments.model, "--threads", str(num_cpus)]
    situations: dict[str, tuple[float, list[list[str]]]] = {
        "alone": (1.0, []),
        "one processor half busy": (1 - 0.5 / num_cpus, [["--be-busy", "0.5"]]),
        "one processor busy": (1 - 0.5 / num_cpus, [["--be-busy", "1"]]),
        "all processors busy": (0.5, [["--be-busy", "1"]] * num_cpus),
        "beside a second engine": (0.5, [engine_command]),
    }
    engine, rng = make_engine(arguments), random.Random(0)
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(arguments.reps):
        for situation, (_, commands) in situations.items():
            wait_until_quiet(timeout=30)
            with neighbours(*commands):
                for work, (number, length, tokens) in WORK.items():
                    timeline = run_prompts(engine, random_prompts(rng, number, length), tokens)
                    rates.setdefault((situation, work), []).append(timeline.tokens_per_second)
    engine.close()
    print(f"{processor_name()}, {num_cpus} threads, {arguments.reps} repetitions, tokens per second")
    print("| | a fair share | " + " | ".join(f"{work} | of alone" for work in WORK) + " |")
    print("|---" * (2 + 2 * len(WORK)) + "|")
    for situation, (fair, _) in situations.items():
        cells = [f"{fair:.0%}"]
        for work in WORK:
            spread, alone = Spread.of(rates[situation, work]), Spread.of(rates["alone", work])
            cells += [spread.format(), f"{spread.median / alone.median:.0%}"]
        print(f"| {situation} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
