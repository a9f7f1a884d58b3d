"""What HTTP costs: tokens per second through `octavo serve` beside the offline `LLM`, on the same work.

    python benchmarks/http/overhead.py --reps 5

Server and offline engine take turns, in processes of their own, with fresh tokens in each repetition. The
load generator runs on the same processors, and what it uses is not the server's doing: its CPU seconds,
shared among the processors, are taken off the time through HTTP. The ratio with nothing taken off is told,
too.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import FOLDER, LoadProcess, closed_load
from open_loop import serve_command
from server_process import ServerProcess

from octavo.bench.noise import Meter, wait_until_quiet
from octavo.bench.spread import Spread

SEED = 90_000


class OfflineProcess:
    """An offline `LLM` in a process of its own; it sleeps while it has no job."""

    def __init__(self, model: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "offline_process.py"), model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def process_id(self) -> int:
        """Of the process."""
        return self._process.pid

    def run(self, prompts: list[list[int]], output_tokens: int) -> dict[str, Any]:
        """Generate; returns seconds and tokens."""
        self._process.stdin.write(json.dumps({"prompts": prompts, "output_tokens": output_tokens}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def measure(
    server: ServerProcess, offline: OfflineProcess, generator: LoadProcess, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """All repetitions; the first one warms up."""
    records = []
    size = (arguments.streams, arguments.prompt_tokens, arguments.output_tokens)
    roots = [server.process_id, offline.process_id, generator.process_id]
    for repetition in range(arguments.reps + 1):
        load = closed_load(*size, SEED + repetition)
        wait_until_quiet(timeout=arguments.wait, roots=roots)
        with Meter(roots) as meter:
            alone = offline.run(load.prompts, load.output_tokens)
            served = generator.run(server, load)
        record = {
            "offline": alone["tokens"] / alone["wall"],
            "http": served["tokens"] / served["wall"],
            "http_less_client": served["tokens"]
            / (served["wall"] - served["client_cpu"] / (os.cpu_count() or 1)),
            "client_cpu": served["client_cpu"],
            "others": round(meter.others, 4),
            "clean": meter.is_clean,
        }
        if repetition:
            records.append(record)
            print(json.dumps(record), flush=True)
    return records


def report(records: list[dict[str, Any]]) -> None:
    """Medians, and the ratios of each pair."""
    clean = [record for record in records if record["clean"]]
    used = clean or records
    print(f"\n{len(used)} repetitions{'' if clean else ', none of them clean'}")
    for name, words in (
        ("offline", "offline LLM [tokens/s]"),
        ("http", "through HTTP [tokens/s]"),
        ("http_less_client", "through HTTP, client's CPU taken off [tokens/s]"),
        ("client_cpu", "client's CPU [s]"),
    ):
        print(f"{words:50} {Spread.of([record[name] for record in used]).format()}")
    for name, words in (("http", "ratio"), ("http_less_client", "ratio, client's CPU taken off")):
        print(f"{words:50} {Spread.of([record[name] / record['offline'] for record in used]).format()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--wait", type=float, default=120.0, help="longest wait for a quiet machine [s]")
    parser.add_argument("--logs", type=Path, default=Path(), help="folder for the server's own output")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        server = ServerProcess("octavo", serve_command(arguments.model), arguments.logs / "http-octavo.log")
        stack.callback(server.close)
        offline = OfflineProcess(arguments.model)
        stack.callback(offline.close)
        generator = stack.enter_context(LoadProcess())
        report(measure(server, offline, generator, arguments))


if __name__ == "__main__":
    main()
