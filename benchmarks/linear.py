"""Speed of the native linear kernel: billions of operations and gigabytes of weights per second.

    python benchmarks/linear.py --isa auto --threads 2

Few rows are run over enough copies of the weight that they do not stay in a cache, many rows over as many as
keep a run short. Best of several runs: other work on the machine only ever slows one down.
"""

import argparse
import itertools
import time

import numpy as np

from octavo.kernels.interpreter import StepInput
from octavo.kernels.native import NativeInterpreter
from octavo.kernels.program import Program
from octavo.kernels.weight import Quantization, Weight
from octavo.kv.spec import KVCacheSpec

SHAPES = ((3072, 576), (2048, 8192))
ROW_COUNTS = (1, 4, 32, 512)
WEIGHT_BYTES = 96_000_000
RUN_OPERATIONS = 4_000_000_000
BLOCK_BYTES = {Quantization.Q4_1: (32, 20), Quantization.Q8_0: (32, 34), Quantization.F16: (1, 2)}
NO_CACHE = KVCacheSpec(block_size=16, num_layers=1, num_kv_heads=1, head_dim=16, dtype="float16")


def random_weight(rng: np.random.Generator, shape: tuple[int, int], quantization: Quantization) -> Weight:
    elements, num_bytes = BLOCK_BYTES[quantization]
    size = shape[0] * shape[1] // elements * num_bytes
    raw = rng.integers(
        0, 64, size, dtype=np.uint8
    )  # small bytes: every float16 among them is a finite number
    return Weight("weight", shape, quantization, raw)


def rows_only_step(num_tokens: int) -> StepInput:
    positions = np.arange(num_tokens, dtype=np.int32)
    zeros = np.zeros(num_tokens, np.int32)
    return StepInput(
        token_ids=zeros,
        positions=positions,
        query_start_loc=np.array([0, num_tokens], np.int32),
        seq_lens=np.array([num_tokens], np.int32),
        block_tables=np.zeros((1, num_tokens), np.int32),
        logit_rows=np.empty(0, np.int32),
    )


def measure(
    shape: tuple[int, int], quantization: Quantization, rows: int, *, isa: str, threads: int
) -> tuple[float, float]:
    """GOP/s, and GB/s of packed weights."""
    rng = np.random.default_rng(0)
    program = Program()
    x = program.input(shape[1])
    weight = random_weight(rng, shape, quantization)
    operations_per_copy = 2 * rows * shape[0] * shape[1]
    copies = max(1, min(WEIGHT_BYTES // weight.raw.nbytes, RUN_OPERATIONS // operations_per_copy))
    for _ in range(copies):
        program.linear(x, Weight("copy", shape, quantization, weight.raw))
    interpreter = NativeInterpreter(
        program, NO_CACHE, 1, max_num_tokens=rows, max_logit_rows=1, num_threads=threads, isa=isa
    )
    interpreter.write(x, rng.normal(size=(rows, shape[1])).astype(np.float32))
    seconds = best_seconds(interpreter, rows_only_step(rows))
    weight_bytes = interpreter.weight_bytes
    interpreter.close()
    return copies * operations_per_copy / seconds / 1e9, weight_bytes / seconds / 1e9


def best_seconds(interpreter: NativeInterpreter, step: StepInput) -> float:
    best = float("inf")
    deadline = time.perf_counter() + 0.7
    while time.perf_counter() < deadline or best == float("inf"):
        start = time.perf_counter()
        interpreter.run(step)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--formats", nargs="+", default=[str(format) for format in BLOCK_BYTES])
    arguments = parser.parse_args()
    for name, shape, rows in itertools.product(arguments.formats, SHAPES, ROW_COUNTS):
        operations, memory = measure(
            shape, Quantization(name), rows, isa=arguments.isa, threads=arguments.threads
        )
        print(
            f"{arguments.isa} {arguments.threads} threads  {name:5} {shape[0]}x{shape[1]}  "
            f"{rows:4} rows  {operations:8.1f} GOP/s  {memory:6.1f} GB/s"
        )


if __name__ == "__main__":
    main()
