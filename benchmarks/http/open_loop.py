"""Latencies under Poisson arrivals, of Octavo and of other servers driven by the same client.

    python benchmarks/http/open_loop.py --requests 200 --reps 3 \\
        --peer "llama-server=llama-server -m FILE.gguf --port {port} -np 32 -c 32768 -t 2" \\
        --peer "vllm=PYTHON -m vllm.entrypoints.openai.api_server --model FOLDER --port {port}"

Octavo's capacity is measured first, with as many streams as it takes at once; then every server gets the
same arrivals at a share of it, with fresh tokens in each repetition. An open loop does not wait for answers,
so a server that is too slow builds up a queue, and its latencies show it: they count from the moment at
which a request was due. Whoever is not measured is stopped by SIGSTOP. Records are appended to a file as
JSON lines; the table is markdown.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import Load, LoadError, LoadProcess, Mix, poisson_load
from server_process import ServerProcess

from octavo.bench.machine import describe_machine
from octavo.bench.noise import Meter, wait_until_quiet
from octavo.bench.spread import Spread, percentile

SEED = 70_000
MEASURES = ("TTFT p50", "TTFT p99", "ITL p50", "ITL p99")


def serve_command(model: str) -> list[str]:
    """Octavo's own command line."""
    return [sys.executable, "-m", "octavo", "serve", "--model", model, "--port", "{port}"]


def start_servers(arguments: argparse.Namespace, stack: ExitStack) -> list[ServerProcess]:
    """Octavo first; each is stopped as soon as it is there."""
    commands = [("octavo", serve_command(arguments.model) + shlex.split(arguments.octavo_options))]
    for peer in arguments.peer:
        name, _, command = peer.partition("=")
        commands.append((name, shlex.split(command)))
    servers = []
    for name, command in commands:
        print(f"starting {name}", flush=True)
        server = ServerProcess(name, command, arguments.logs / f"http-{name}.log")
        stack.callback(server.close)
        server.stop()
        servers.append(server)
    return servers


def measure(server: ServerProcess, generator: LoadProcess, load: Load, wait: float) -> dict[str, Any]:
    """One load on one server, with the share of the machine that others took."""
    server.wake()
    try:
        wait_until_quiet(timeout=wait, roots=[server.process_id, generator.process_id])
        with Meter([server.process_id, generator.process_id]) as meter:
            answer = generator.run(server, load)
    finally:
        server.stop()
    return {"server": server.name, **answer, "others": round(meter.others, 4), "clean": meter.is_clean}


def summarize(record: dict[str, Any]) -> dict[str, float]:
    """The measures of one run [ms]."""
    first, gaps = record["first"], record["gaps"]
    values = (percentile(first, 0.5), percentile(first, 0.99), percentile(gaps, 0.5), percentile(gaps, 0.99))
    return {name: 1e3 * value for name, value in zip(MEASURES, values, strict=True)}


def capacity(server: ServerProcess, generator: LoadProcess, arguments: argparse.Namespace) -> float:
    """Requests per second that a server finishes when it always has enough of them."""
    mix = mix_of(arguments)
    rates = []
    for repetition in range(arguments.reps):
        load = poisson_load(mix, rate=1e9, num_requests=arguments.streams, seed=SEED + 10 * repetition)
        record = measure(server, generator, load, arguments.wait)
        rates.append(arguments.streams / record["wall"])
    return Spread.of(rates).median


def mix_of(arguments: argparse.Namespace) -> Mix:
    """What arrivals are like."""
    return Mix(
        arguments.prompt_tokens, arguments.output_tokens, arguments.shared_tokens, arguments.shared_share
    )


def run(servers: Sequence[ServerProcess], generator: LoadProcess, arguments: argparse.Namespace) -> None:
    """Warm up, find the rate, and measure in turn."""
    for server in servers:
        warm_up = poisson_load(mix_of(arguments), rate=1e9, num_requests=arguments.streams, seed=SEED - 10)
        measure(server, generator, warm_up, 0.0)
    rate = arguments.rate or arguments.share * capacity(servers[0], generator, arguments)
    print(f"{rate:.2f} requests per second", flush=True)
    records: list[dict[str, Any]] = []
    for repetition in range(arguments.reps):
        seed = SEED + 1000 * (repetition + 1)
        load = poisson_load(mix_of(arguments), rate=rate, num_requests=arguments.requests, seed=seed)
        first = repetition % len(servers)
        for server in [*servers[first:], *servers[:first]]:
            try:
                record = measure(server, generator, load, arguments.wait)
            except LoadError as error:
                print(f"  failed: {error}", flush=True)
                continue
            record |= {"rate": rate, "repetition": repetition, **summarize(record)}
            records.append(record)
            with arguments.results.open("a", encoding="utf-8") as log:
                log.write(json.dumps({"machine": describe_machine(), **record}) + "\n")
            shown = "  ".join(f"{name} {record[name]:.1f} ms" for name in MEASURES)
            print(f"{server.name:16} {shown}  others {record['others']:.0%}", flush=True)
    print(f"\n{table(records)}", end="")


def table(records: Sequence[dict[str, Any]]) -> str:
    """Median and range of the clean runs of each server, or of all if none was clean."""
    lines = [f"| server | {' ms | '.join(MEASURES)} ms | runs |", "|---" * (len(MEASURES) + 2) + "|"]
    for name in dict.fromkeys(record["server"] for record in records):
        runs = [record for record in records if record["server"] == name]
        clean = [record for record in runs if record["clean"]]
        used = clean or runs
        cells = [Spread.of([record[measure_name] for record in used]).format() for measure_name in MEASURES]
        lines.append(f"| {name} | {' | '.join(cells)} | {len(used)}{'' if clean else ', not clean'} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="of Octavo")
    parser.add_argument("--octavo-options", default="", help="more options of octavo serve, in one word")
    parser.add_argument("--peer", action="append", default=[], help="NAME=COMMAND with {port} in it")
    parser.add_argument("--share", type=float, default=0.7, help="of Octavo's capacity")
    parser.add_argument("--rate", type=float, help="requests per second instead of a share")
    parser.add_argument("--requests", type=int, default=200, help="per repetition")
    parser.add_argument("--streams", type=int, default=64, help="at once, to measure the capacity")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--shared-tokens", type=int, default=512)
    parser.add_argument("--shared-share", type=float, default=0.5)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--wait", type=float, default=120.0, help="longest wait for a quiet machine [s]")
    parser.add_argument("--results", type=Path, default=Path("http-open-loop.jsonl"), help="appended to")
    parser.add_argument("--logs", type=Path, default=Path(), help="folder for the servers' own output")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    with ExitStack() as stack:
        servers = start_servers(arguments, stack)
        run(servers, stack.enter_context(LoadProcess()), arguments)


if __name__ == "__main__":
    main()
