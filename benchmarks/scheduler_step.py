"""Cost of one scheduler step without a model: `schedule` and `update` with every request decoding.

    python benchmarks/scheduler_step.py [--steps 400] [--running 1 64 256 1024]

Pure Python over the real KV cache, prefix caching on: every token is appended, hashed when it fills a
block, given a slot and made findable. Wall and CPU time of this thread, median and 99th percentile.
"""

import argparse
import gc
import random
import statistics
import time

from octavo.config import SchedulerConfig
from octavo.kv.hashing import BlockHasher, model_root
from octavo.kv.manager import KVCacheManager
from octavo.sampling_params import SamplingParams
from octavo.sched.output import RequestResult, RunnerOutput, SchedulerOutput
from octavo.sched.request import Request
from octavo.sched.scheduler import Scheduler

BLOCK_SIZE = 16
PROMPT_TOKENS = 512
VOCAB_SIZE = 49_152


def make_scheduler(num_running: int, num_steps: int) -> Scheduler:
    """A scheduler with ``num_running`` requests whose prompts differ, about to compute their prompts."""
    max_model_len = PROMPT_TOKENS + num_steps + 2
    config = SchedulerConfig(
        max_num_batched_tokens=num_running * PROMPT_TOKENS,
        max_num_seqs=num_running,
        max_waiting_requests=num_running,
    )
    blocks_per_request = -(-max_model_len // BLOCK_SIZE)
    kv = KVCacheManager(num_blocks=num_running * blocks_per_request, block_size=BLOCK_SIZE)
    scheduler = Scheduler(config, kv, max_model_len=max_model_len)
    root = model_root("benchmark", kv_dtype="float16", kv_layout="benchmark", rope_parameters={})
    hasher = BlockHasher(BLOCK_SIZE, root)
    rng = random.Random(0)
    for index in range(num_running):
        prompt = [rng.randrange(VOCAB_SIZE) for _ in range(PROMPT_TOKENS)]
        params = SamplingParams(max_tokens=num_steps + 1)
        scheduler.add(Request(f"request-{index}", prompt, params, seed=0, block_hasher=hasher))
    return scheduler


def sampled(output: SchedulerOutput, rng: random.Random) -> RunnerOutput:
    """A random token for every request that samples."""
    return RunnerOutput(
        {s.request_id: RequestResult(rng.randrange(VOCAB_SIZE)) for s in output.scheduled if s.samples}
    )


def time_steps(num_running: int, num_steps: int) -> tuple[list[float], list[float]]:
    """Wall and CPU time of each decoding step [ms]."""
    scheduler = make_scheduler(num_running, num_steps)
    rng = random.Random(1)
    prompts = scheduler.schedule()
    scheduler.update(prompts, sampled(prompts, rng))
    wall_ms, cpu_ms = [], []
    gc.collect()
    for _ in range(num_steps - 1):
        wall_start, cpu_start = time.perf_counter(), time.thread_time()
        output = scheduler.schedule()
        wall_mid, cpu_mid = time.perf_counter(), time.thread_time()
        results = sampled(output, rng)
        wall_resume, cpu_resume = time.perf_counter(), time.thread_time()
        scheduler.update(output, results)
        wall_ms.append((time.perf_counter() - wall_resume + wall_mid - wall_start) * 1e3)
        cpu_ms.append((time.thread_time() - cpu_resume + cpu_mid - cpu_start) * 1e3)
    return wall_ms, cpu_ms


def percentile_99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="steps per row")
    parser.add_argument("--running", type=int, nargs="+", default=[1, 64, 256, 1024], help="running requests")
    arguments = parser.parse_args()
    print("running   median ms      p99 ms   cpu median ms   cpu p99 ms   cpu µs/request")
    for num_running in arguments.running:
        wall_ms, cpu_ms = time_steps(num_running, arguments.steps)
        median = statistics.median(cpu_ms)
        print(
            f"{num_running:7d} {statistics.median(wall_ms):11.3f} {percentile_99(wall_ms):11.3f} "
            f"{median:15.3f} {percentile_99(cpu_ms):12.3f} {median / num_running * 1e3:16.2f}"
        )


if __name__ == "__main__":
    main()
