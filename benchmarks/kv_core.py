"""CPU time of the KV-cache core, alone or side by side with vLLM's cache manager.

    python benchmarks/kv_core.py
    python benchmarks/kv_core.py --peer-python /path/to/vllm-venv/bin/python

The same operations and the same measuring code run for both engines; only the adapter differs. Times
are process CPU time, so that a busy machine does not spoil them, less the time that reading the clock
takes; each figure is the median over the rounds of a round's median. With a peer, rounds alternate
between the engines, each in a fresh process.
"""

import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

BLOCK_SIZE = 16
NUM_BLOCKS = 20_000
MAX_MODEL_LEN = 16_384
NUM_DECODING = 32

# Operation, unit, and the most that it may take of the peer's time.
OPERATIONS = (
    ("new request with block hashes, 8192 tokens", "µs per token", 0.65),
    ("allocate 1000 tokens", "µs", 0.5),
    ("allocate 1000 tokens, evicting", "µs", 0.5),
    ("free 1000 tokens", "µs", 0.5),
    ("decode step: append, allocate, commit", "µs per request", 0.5),
    ("look up 8192 tokens, all cached", "µs", 0.5),
    ("look up and allocate 8192 tokens, all cached", "µs", 0.5),
    ("look up 8192 tokens, none cached", "µs", 0.5),
    ("Python objects of the pool", "bytes per block", 1.0),
)


class Engine(Protocol):
    """What is measured; one implementation for each engine."""

    def new_manager(self) -> Any:
        """A cache manager with prefix caching."""

    def new_pool(self) -> Any:
        """Its block pool alone."""

    def new_request(self, token_ids: Sequence[int]) -> Any:
        """A request with the hashes of its full blocks."""

    def lookup(self, manager: Any, request: Any) -> Any:
        """The cached prefix of a request."""

    def allocate(self, manager: Any, request: Any, num_tokens: int) -> None:
        """Slots for the request's tokens; full blocks become findable."""

    def lookup_and_allocate(self, manager: Any, request: Any) -> None:
        """Admit a request with whatever is cached of it."""

    def decode(self, manager: Any, requests: Sequence[Any]) -> None:
        """One more token for each request: what a step does for it."""

    def end_step(self, manager: Any) -> None:
        """The step has run."""


class Octavo:
    """The cache core of this repository, with the scheduler's own request."""

    def __init__(self) -> None:
        from octavo.kv import BlockHasher, KVCacheManager
        from octavo.kv.block_pool import BlockPool
        from octavo.sampling_params import SamplingParams
        from octavo.sched.request import Request

        hasher = BlockHasher(BLOCK_SIZE, bytes(32))
        params = SamplingParams(max_tokens=16)
        self.new_manager = lambda: KVCacheManager(
            num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_model_len=MAX_MODEL_LEN
        )
        self.new_pool = lambda: BlockPool(NUM_BLOCKS)
        self._num_requests = 0

        def new_request(token_ids):
            self._num_requests += 1
            return Request(str(self._num_requests), token_ids, params, seed=0, block_hasher=hasher)

        self.new_request = new_request

    def lookup(self, manager, request):
        return manager.lookup(request)

    def allocate(self, manager, request, num_tokens):
        manager.allocate(request, num_tokens)
        manager.commit(request, num_tokens)

    def lookup_and_allocate(self, manager, request):
        hit = manager.lookup(request)
        manager.allocate(request, request.num_tokens - hit.num_tokens, hit=hit)
        manager.commit(request, request.num_tokens)

    def decode(self, manager, requests):
        for request in requests:
            request.append_token(7)
            manager.allocate(request, 1)
            request.num_computed_tokens += 1
            manager.commit(request, request.num_computed_tokens)

    def end_step(self, manager):
        manager.confirm_step()


class Vllm:
    """vLLM's V1 cache manager, with SHA-256 block hashes."""

    def __init__(self) -> None:
        import torch
        from vllm.sampling_params import SamplingParams
        from vllm.utils import hashing
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.block_pool import BlockPool
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

        kv_cache_utils.init_none_hash(hashing.sha256)
        hasher = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, hashing.sha256)
        params = SamplingParams(max_tokens=16)
        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=3, head_size=64, dtype=torch.float32)
        self.new_manager = lambda: KVCacheManager(
            KVCacheConfig(NUM_BLOCKS, [], [KVCacheGroupSpec(["layer"], spec)]),
            max_model_len=MAX_MODEL_LEN,
            scheduler_block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            enable_caching=True,
        )
        self.new_pool = lambda: BlockPool(NUM_BLOCKS, True, BLOCK_SIZE)
        self._num_requests = 0

        def new_request(token_ids):
            self._num_requests += 1
            return Request(str(self._num_requests), token_ids, params, None, block_hasher=hasher)

        self.new_request = new_request

    def lookup(self, manager, request):
        return manager.get_computed_blocks(request)

    def allocate(self, manager, request, num_tokens):
        manager.allocate_slots(request, num_tokens)

    def lookup_and_allocate(self, manager, request):
        blocks, num_hit_tokens, *_ = manager.get_computed_blocks(request)
        manager.allocate_slots(request, request.num_tokens - num_hit_tokens, num_hit_tokens, blocks)

    def decode(self, manager, requests):
        for request in requests:
            request.append_output_token_ids(7)
            manager.allocate_slots(request, 1)
            request.num_computed_tokens += 1

    def end_step(self, manager):
        pass


ENGINES: dict[str, Callable[[], Engine]] = {"octavo": Octavo, "vllm": Vllm}


def median_time(
    operation: Callable[[Any], object], prepare: Callable[[], Any], *, repeats: int, per: int = 1
) -> float:
    """Median CPU time of ``operation(prepare())`` [µs], divided by ``per``."""
    times, empty_times = [], []
    for _ in range(repeats):
        argument = prepare()
        gc.collect(0)
        start = time.process_time_ns()
        operation(argument)
        end = time.process_time_ns()
        times.append(end - start)
        empty_times.append(time.process_time_ns() - end)
    return (statistics.median(times) - statistics.median(empty_times)) / 1e3 / per


class Workload:
    """Runs every operation on one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.rng = random.Random(0)

    def tokens(self, num_tokens: int) -> list[int]:
        return [self.rng.randrange(49_152) for _ in range(num_tokens)]

    def request(self, num_tokens: int) -> Any:
        return self.engine.new_request(self.tokens(num_tokens))

    def measure(self) -> dict[str, float]:
        """Every figure, by the name of its operation."""
        figures = [
            self.new_request(),
            *self.allocate_and_free(),
            self.decode(),
            *self.lookup_cached(),
            self.lookup_uncached(),
            self.bytes_per_block(),
        ]
        return {name: figure for (name, _, _), figure in zip(OPERATIONS, figures, strict=True)}

    def new_request(self) -> float:
        return median_time(self.engine.new_request, lambda: self.tokens(8192), repeats=25, per=8192)

    def allocate_and_free(self) -> tuple[float, float, float]:
        """Into an empty pool, then into one that is full of cached blocks; free after each."""
        manager = self.engine.new_manager()
        pending: list[Any] = []

        def allocate(request):
            self.engine.allocate(manager, request, 1000)
            pending.append(request)

        allocated = median_time(allocate, lambda: self.request(1000), repeats=100)
        self.engine.end_step(manager)
        freed = median_time(manager.free, pending.pop, repeats=100)
        for _ in range(NUM_BLOCKS * BLOCK_SIZE // 8000):
            request = self.request(8000)
            self.engine.allocate(manager, request, 8000)
            self.engine.end_step(manager)
            manager.free(request)
        evicting = median_time(allocate, lambda: self.request(1000), repeats=100)
        return allocated, evicting, freed

    def decode(self) -> float:
        manager = self.engine.new_manager()
        requests = [self.request(256) for _ in range(NUM_DECODING)]
        for request in requests:
            self.engine.allocate(manager, request, 256)
            request.num_computed_tokens = 256
        self.engine.end_step(manager)

        def step(_):
            self.engine.decode(manager, requests)
            self.engine.end_step(manager)

        return median_time(step, lambda: None, repeats=200, per=NUM_DECODING)

    def lookup_cached(self) -> tuple[float, float]:
        manager, token_ids = self.engine.new_manager(), self.tokens(8192)
        first = self.engine.new_request(token_ids)
        self.engine.allocate(manager, first, 8192)
        self.engine.end_step(manager)
        manager.free(first)
        looked_up = median_time(
            lambda request: self.engine.lookup(manager, request),
            lambda: self.engine.new_request(token_ids),
            repeats=50,
        )
        admitted: list[Any] = []

        def prepare():
            self.engine.end_step(manager)
            while admitted:
                manager.free(admitted.pop())
            admitted.append(self.engine.new_request(token_ids))
            return admitted[0]

        def admit(request):
            self.engine.lookup_and_allocate(manager, request)

        return looked_up, median_time(admit, prepare, repeats=50)

    def lookup_uncached(self) -> float:
        manager = self.engine.new_manager()
        return median_time(
            lambda request: self.engine.lookup(manager, request), lambda: self.request(8192), repeats=50
        )

    def bytes_per_block(self) -> float:
        gc.collect()
        tracemalloc.start()
        pool = self.engine.new_pool()
        num_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del pool
        return num_bytes / NUM_BLOCKS


def measure_in_process(python: str, engine_name: str) -> dict[str, float]:
    """One round of one engine in a process of its own."""
    command = [python, str(Path(__file__).resolve()), "--engine", engine_name]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    if result.returncode:
        sys.exit(f"{engine_name} could not be measured with {python}:\n{result.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def print_table(ours: dict[str, float], peers: dict[str, float] | None) -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs")
    header = f"{'CPU time, median':46} {'octavo':>9}"
    print(header + (f" {'vllm':>9} {'ratio':>7} {'limit':>7}" if peers else ""))
    for name, unit, limit in OPERATIONS:
        line = f"{name:46} {ours[name]:9.3f}"
        if peers:
            ratio = ours[name] / peers[name]
            line += f" {peers[name]:9.3f} {ratio:7.2f} {limit:7.2f} {'' if ratio <= limit else 'over'}"
        print(f"{line}  {unit}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", metavar="PATH", help="the Python of an environment that has vLLM")
    parser.add_argument("--rounds", type=int, default=5, help="processes per engine (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    parser.add_argument(
        "--engine", choices=sorted(ENGINES), help="measure this engine once, here; print JSON"
    )
    options = parser.parse_args()
    if options.engine:
        print(json.dumps(Workload(ENGINES[options.engine]()).measure()))
        return
    our_rounds, peer_rounds = [], []
    for _ in range(options.rounds):
        our_rounds.append(measure_in_process(sys.executable, "octavo"))
        if options.peer_python:
            peer_rounds.append(measure_in_process(options.peer_python, "vllm"))
    ours, peers = medians(our_rounds), medians(peer_rounds) if peer_rounds else None
    print_table(ours, peers)
    if options.json:
        options.json.write_text(json.dumps({"octavo": ours, "vllm": peers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
