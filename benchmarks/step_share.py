"""How much of a decode step is Python: schedule, batch building and output beside the native time.

    python benchmarks/step_share.py [--rows 1 8 32 128] [--steps 400] [--output final_only]

The real model, every request decoding greedily. Each step's time is split by who spends it: ``native`` is
inside the native library, ``python`` everything else that `Engine.step` takes. Medians over the steps, so
that a step in which another process had the processor does not count.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from octavo.bench.workloads import random_tokens
from octavo.build import Built, build
from octavo.config import EngineConfig
from octavo.kernels.native_library import load_library
from octavo.sampling_params import RequestOutputKind, SamplingParams

PROMPT_TOKENS = 64
PARTS = ("schedule", "batch", "native", "sampling", "update", "output", "rest")


class StopWatch:
    """Time by part; what a part spends in another part counts for that one alone."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PARTS, 0.0)
        self._open: list[str] = []
        self._since = 0.0

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.spent[self._open[-1]] += now - self._since
        self._since = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            self._switch()
            self._open.append(part)
            try:
                return function(*arguments, **options)
            finally:
                self._switch()
                self._open.pop()

        return run

    def take(self) -> dict[str, float]:
        """What was spent since the last call [s]."""
        spent, self.spent = self.spent, dict.fromkeys(PARTS, 0.0)
        return spent


def watch(built: Built) -> StopWatch:
    """Put a stop watch between the parts of an engine."""
    engine, runner = built.engine, built.engine.core.runner
    watch = StopWatch()
    for owner, name, part in (
        (engine, "step", "rest"),
        (engine.core.scheduler, "schedule", "schedule"),
        (engine.core.scheduler, "update", "update"),
        (runner, "submit", "sampling"),
        (runner._rows, "apply", "batch"),
        (runner._input_batch, "fill", "batch"),
        (runner._interpreter, "run", "batch"),
        (engine._outputs, "process", "output"),
        (load_library(), "call", "native"),
    ):
        setattr(owner, name, watch.timed(part, getattr(owner, name)))
    return watch


def time_steps(
    built: Built, stop_watch: StopWatch, args: argparse.Namespace, num_rows: int
) -> list[dict[str, float]]:
    """What each decode step spent by part [s]."""
    engine = built.engine
    params = SamplingParams(
        temperature=0.0,
        max_tokens=args.steps + 64,  # those admitted first are ahead of the others
        ignore_eos=True,
        output_kind=RequestOutputKind[args.output.upper()],
    )
    prompts = random_tokens(num_rows, PROMPT_TOKENS, num_rows, vocab_size=built.model.spec.vocab_size)
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, params)
    while engine.core.scheduler.num_running < num_rows or engine.num_output_tokens == 0:
        engine.step()
    stop_watch.take()
    steps = []
    for _ in range(args.steps):
        engine.step()
        steps.append(stop_watch.take())
    engine.abort_all()
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 128], help="requests decoding")
    parser.add_argument("--steps", type=int, default=400, help="steps per line")
    parser.add_argument(
        "--output", default="final_only", choices=[kind.name.lower() for kind in RequestOutputKind]
    )
    parser.add_argument("--num-threads", type=int, default=2)
    args = parser.parse_args()
    built = build(
        EngineConfig.from_options({"max_num_seqs": max(args.rows), "num_threads": args.num_threads})
    )
    stop_watch = watch(built)
    print("rows " + "".join(f"{part:>10}" for part in PARTS) + "    python  share    (median µs per step)")
    for num_rows in args.rows:
        steps = time_steps(built, stop_watch, args, num_rows)
        medians = [1e6 * statistics.median(step[part] for step in steps) for part in PARTS]
        python = 1e6 * statistics.median(sum(step.values()) - step["native"] for step in steps)
        native = medians[PARTS.index("native")]
        print(
            f"{num_rows:4d} "
            + "".join(f"{m:10.1f}" for m in medians)
            + f"{python:10.1f} {python / (python + native):6.1%}"
        )
    built.engine.close()


if __name__ == "__main__":
    main()
