"""How much of a decode step is Python: schedule, batch building and output beside the native time.

    python benchmarks/step_share.py [--rows 1 8 32 128] [--steps 300] [--output final_only]

The real model, every request decoding greedily. ``native`` is what `Engine.step` spends inside the native
library, ``python`` everything else; medians over the steps, so that a step in which another process had the
processor does not count. The second table says where Python's time goes; its clocks cost some themselves.
Up to 8 rows, the other threads compute while Python runs, and `native` is what is left when it is done:
`--no-early-steps` turns that off.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from octavo.bench.workloads import random_tokens
from octavo.build import Built, build
from octavo.config import EngineConfig
from octavo.kernels.native_library import load_library
from octavo.sampling_params import RequestOutputKind, SamplingParams

PROMPT_TOKENS = 64
WARM_UP_STEPS = 32
Spent = dict[str, float]
"""Seconds by part."""


class StopWatch:
    """Time by part; what a part spends in another part counts for that one alone."""

    def __init__(self) -> None:
        self._spent: Spent = {}
        self._open: list[str] = []
        self._since = 0.0

    def watch(self, part: str, owner: object, name: str) -> None:
        """Count the time in a method of ``owner`` as that of ``part``."""
        setattr(owner, name, self._timed(part, getattr(owner, name)))

    def take(self) -> Spent:
        """What was spent since the last call."""
        spent, self._spent = self._spent, {}
        return spent

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            self._switch()
            self._open.append(part)
            try:
                return function(*arguments, **options)
            finally:
                self._switch()
                self._open.pop()

        return run

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._open:
            part = self._open[-1]
            self._spent[part] = self._spent.get(part, 0.0) + now - self._since
        self._since = now


def watch_parts(stop_watch: StopWatch, built: Built) -> None:
    """Watch those who share Python's time."""
    engine, runner = built.engine, built.engine.core.runner
    stop_watch.watch("schedule", engine.core.scheduler, "schedule")
    stop_watch.watch("sampling", runner, "submit")
    stop_watch.watch("batch", runner._rows, "apply")
    stop_watch.watch("batch", runner._input_batch, "fill")
    stop_watch.watch("batch", runner._interpreter, "run_and_sample")
    stop_watch.watch("update", engine.core.scheduler, "update")
    stop_watch.watch("telemetry", engine.telemetry, "step_began")
    stop_watch.watch("telemetry", engine.telemetry, "step_ended")
    stop_watch.watch("telemetry", engine.telemetry, "publish_if_due")
    stop_watch.watch("output", engine._outputs, "process")


def time_steps(built: Built, stop_watch: StopWatch, params: SamplingParams, num_rows: int) -> list[Spent]:
    """What each step spent in which nothing happens but that ``num_rows`` requests decode."""
    engine = built.engine
    prompts = random_tokens(num_rows, PROMPT_TOKENS, num_rows, vocab_size=built.model.spec.vocab_size)
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, params)
    while engine.core.scheduler.num_waiting:
        engine.step()
    steps = []
    while engine.core.scheduler.num_running == num_rows:
        engine.step()
        steps.append(stop_watch.take())
    while engine.has_unfinished_requests:
        engine.step()
    return steps[WARM_UP_STEPS:-1]


def median_us(steps: Sequence[Spent], *parts: str) -> float:
    """Of the time of some parts together."""
    return 1e6 * statistics.median(sum(step.get(part, 0.0) for part in parts) for step in steps)


def print_shares(built: Built, stop_watch: StopWatch, params: SamplingParams, rows: Sequence[int]) -> None:
    print("rows    native µs    python µs   share")
    for num_rows in rows:
        steps = time_steps(built, stop_watch, params, num_rows)
        native, python = median_us(steps, "native"), median_us(steps, "rest")
        print(f"{num_rows:4d} {native:12.0f} {python:12.0f} {python / (python + native):7.1%}", flush=True)


def print_parts(built: Built, stop_watch: StopWatch, params: SamplingParams, rows: Sequence[int]) -> None:
    parts = ("schedule", "batch", "sampling", "update", "telemetry", "output", "rest")
    print("\nrows " + "".join(f"{part:>11}" for part in parts))
    for num_rows in rows:
        steps = time_steps(built, stop_watch, params, num_rows)
        medians = "".join(f"{median_us(steps, part):11.0f}" for part in parts)
        print(f"{num_rows:4d} {medians}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 128], help="requests decoding")
    parser.add_argument("--steps", type=int, default=300, help="tokens of each request")
    parser.add_argument(
        "--output", default="final_only", choices=[kind.name.lower() for kind in RequestOutputKind]
    )
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--no-early-steps", action="store_true", help="compute nothing while Python runs")
    args = parser.parse_args()
    options = {"max_num_seqs": max(args.rows), "num_threads": args.num_threads}
    built = build(EngineConfig.from_options(options))
    built.engine.core.runner._interpreter.begin_early("never" if args.no_early_steps else "undisturbed")
    params = SamplingParams(
        temperature=0.0,
        max_tokens=args.steps,
        ignore_eos=True,
        output_kind=RequestOutputKind[args.output.upper()],
    )
    stop_watch = StopWatch()
    stop_watch.watch("native", load_library(), "call")
    stop_watch.watch("rest", built.engine, "step")
    print_shares(built, stop_watch, params, args.rows)
    watch_parts(stop_watch, built)
    print_parts(built, stop_watch, params, args.rows)
    built.engine.close()


if __name__ == "__main__":
    main()
