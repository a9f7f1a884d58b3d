"""Speed of native paged attention: gigabytes of K/V per second in decode, GFLOP/s in prefill.

    python benchmarks/attention.py --isa auto --threads 2

Blocks lie in random order. Best of several runs: other work on the machine only ever slows one down. The
first line is what one thread reads at best (memcmp of two large buffers), to compare with.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np

from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program
from octavo.kv.spec import KVCacheSpec

READ_BYTES = 128_000_000


class Workload(NamedTuple):
    num_requests: int
    context: int
    """Tokens in the cache, those of the step included."""
    num_new_tokens: int
    num_heads: int
    num_kv_heads: int
    head_dim: int

    def __str__(self) -> str:
        kind = "decode" if self.num_new_tokens == 1 else f"prefill {self.num_new_tokens}"
        heads = f"{self.num_heads}/{self.num_kv_heads} heads of {self.head_dim}"
        return f"{kind:11}  {self.num_requests:2} x {self.context:5} tokens  {heads:18}"


WORKLOADS = (
    Workload(32, 256, 1, 9, 3, 64),
    Workload(32, 2048, 1, 9, 3, 64),
    Workload(1, 8192, 1, 9, 3, 64),
    Workload(8, 2048, 1, 32, 8, 64),
    Workload(8, 2048, 1, 32, 8, 128),
    Workload(8, 2048, 1, 4, 1, 256),
    Workload(1, 512, 512, 9, 3, 64),
    Workload(1, 2560, 512, 9, 3, 64),
    Workload(1, 2560, 512, 32, 8, 128),
    Workload(1, 2560, 512, 4, 1, 256),
)


def make_step(work: Workload, num_blocks: int) -> StepInput:
    blocks = np.random.default_rng(0).permutation(num_blocks).reshape(work.num_requests, -1)
    positions = np.tile(np.arange(work.context - work.num_new_tokens, work.context), work.num_requests)
    return StepInput(
        token_ids=np.zeros(len(positions), np.int32),
        positions=positions.astype(np.int32),
        query_start_loc=np.arange(0, len(positions) + 1, work.num_new_tokens, dtype=np.int32),
        seq_lens=np.full(work.num_requests, work.context, np.int32),
        block_tables=np.ascontiguousarray(blocks, dtype=np.int32),
        logit_rows=np.empty(0, np.int32),
    )


def measure(work: Workload, *, isa: str, threads: int, block_size: int, kv_dtype: str) -> float:
    """Seconds of one op."""
    rng = np.random.default_rng(0)
    program = Program()
    q = program.input(work.num_heads * work.head_dim)
    program.paged_attention(
        q, layer=0, num_kv_heads=work.num_kv_heads, head_dim=work.head_dim, scale=work.head_dim**-0.5
    )
    spec = KVCacheSpec(
        block_size=block_size,
        num_layers=1,
        num_kv_heads=work.num_kv_heads,
        head_dim=work.head_dim,
        dtype=kv_dtype,
    )
    num_blocks = work.num_requests * -(-work.context // block_size)
    num_tokens = work.num_requests * work.num_new_tokens
    interpreter = NativeInterpreter(
        program, spec, num_blocks, max_num_tokens=num_tokens, max_logit_rows=1, num_threads=threads, isa=isa
    )
    content = rng.normal(size=(2, block_size, work.num_kv_heads, work.head_dim)).astype(kv_dtype)
    for block_id in range(num_blocks):
        interpreter.kv_store.write_block(0, block_id, content)
    interpreter.write(q, rng.normal(size=(num_tokens, q.width)).astype(np.float32))
    step = make_step(work, num_blocks)
    seconds = best_seconds(lambda: interpreter.run(step))
    interpreter.close()
    return seconds


def best_seconds(run) -> float:
    best = float("inf")
    deadline = time.perf_counter() + 0.7
    while time.perf_counter() < deadline or best == float("inf"):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def speed(work: Workload, seconds: float, kv_dtype: str) -> str:
    if work.num_new_tokens == 1:
        elements = 2 * work.num_requests * work.context * work.num_kv_heads * work.head_dim
        return f"{elements * np.dtype(kv_dtype).itemsize / seconds / 1e9:6.1f} GB/s"
    past = work.context - work.num_new_tokens
    pairs = work.num_new_tokens * (past + (work.num_new_tokens + 1) / 2)
    return f"{4 * work.num_requests * work.num_heads * work.head_dim * pairs / seconds / 1e9:6.1f} GFLOP/s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--kv-dtype", choices=["float16", "float32"], default="float16")
    arguments = parser.parse_args()
    buffers = b"o" * READ_BYTES, b"o" * READ_BYTES
    seconds = best_seconds(lambda: buffers[0] == buffers[1])
    print(f"reading memory: {2 * READ_BYTES / seconds / 1e9:.1f} GB/s")
    for work in WORKLOADS:
        seconds = measure(
            work,
            isa=arguments.isa,
            threads=arguments.threads,
            block_size=arguments.block_size,
            kv_dtype=arguments.kv_dtype,
        )
        print(f"{work}  {1e6 * seconds:9.1f} us  {speed(work, seconds, arguments.kv_dtype)}", flush=True)


if __name__ == "__main__":
    main()
