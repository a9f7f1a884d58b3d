"""Time to the first token and resident memory of a model loaded at 4 and 8 bits, beside llama.cpp.

    python benchmarks/random_model.py MODEL
    python benchmarks/load_and_memory.py MODEL --work WORK --llamacpp-python PYTHON

MODEL is a folder of safetensors files of the llama architecture. Octavo packs it once (the first start) and
maps the packed file from then on; llama.cpp gets a GGUF file with the same bytes, written into WORK. Every
start is a process of its own, timed from its beginning to its first token after a prompt of 32 tokens, with
files in the page cache. Both have room for 2,048 tokens of float16 K/V.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from octavo.kernels.select import available_threads
from octavo.kernels.weight import Quantization
from octavo.models.cache_folder import cache_folder
from octavo.models.default_model import resolve_model_path
from octavo.models.gguf import GGUFFile
from octavo.models.huggingface_folder import HuggingFaceFolder
from octavo.models.quantized_source import quantize_source

HERE = Path(__file__).resolve().parent
PROMPT = [1, *range(1000, 1031)]
TYPES = {
    Quantization.F32: gguf.GGMLQuantizationType.F32,
    Quantization.Q4_1: gguf.GGMLQuantizationType.Q4_1,
    Quantization.Q8_0: gguf.GGMLQuantizationType.Q8_0,
}


def write_gguf(folder: Path, kind: str, path: Path) -> None:
    """The packed weights of a folder as a GGUF file; the tokenizer is the default model's."""
    source = quantize_source(
        HuggingFaceFolder(folder), kind, cache=cache_folder(), num_threads=available_threads(), progress=True
    )
    writer = gguf.GGUFWriter(path, "llama")
    read = source.metadata
    for key, value in read.values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
    writer.add_name("random")
    add_tokenizer(writer, vocab_size=source.tensors["token_embd.weight"].shape[0])
    heads = {
        "attn_q": read.count("llama.attention.head_count"),
        "attn_k": read.count("llama.attention.head_count_kv"),
    }
    for name, tensor in source.tensors.items():
        weight = source.weight(name)
        rows = weight.raw.reshape(int(np.prod(tensor.shape[:-1])), -1)
        role = name.split(".")[2] if name.startswith("blk.") else ""
        if role in heads:
            rows = interleaved(rows, heads[role])
        if weight.quantization is Quantization.F32:
            writer.add_tensor(name, rows.view(np.float32).reshape(tensor.shape))
        else:
            writer.add_tensor(name, np.ascontiguousarray(rows), raw_dtype=TYPES[weight.quantization])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, *, vocab_size: int) -> None:
    """The default model's vocabulary, filled up with unused tokens."""
    metadata = GGUFFile(resolve_model_path("smollm2-135m")).metadata
    tokens = metadata.texts("tokenizer.ggml.tokens") or []
    padding = vocab_size - len(tokens)
    types = metadata.array("tokenizer.ggml.token_type", length=len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*tokens, *(f"[PAD{number}]" for number in range(padding))])
    writer.add_token_types([*(types.tolist() if types is not None else ()), *[5] * padding])
    writer.add_token_merges(metadata.texts("tokenizer.ggml.merges") or [])
    writer.add_eos_token_id(2)


def interleaved(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of queries or keys as GGUF has them: the two of a pair side by side."""
    halves = rows.reshape(num_heads, 2, -1, rows.shape[-1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def start(python: str, script: str, job: dict[str, Any]) -> dict[str, float]:
    """Run one engine once: seconds from the start of its process, and bytes."""
    began = time.time()
    command = [python, str(HERE / script), json.dumps(job)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(result.stdout.splitlines()[-1])
    return {**report, "loaded": report["loaded"] - began, "first_token": report["first_token"] - began}


def row(name: str, runs: list[dict[str, float]]) -> str:
    """Medians, and the range of the time."""
    times = [run["first_token"] for run in runs]
    cells = [f"{statistics.median(times):.2f} s ({min(times):.2f} … {max(times):.2f})"]
    cells += [f"{statistics.median(run['loaded'] for run in runs):.2f} s"]
    cells += [
        f"{statistics.median(run[key] for run in runs) / 2**20:,.0f} MiB"
        for key in ("resident", "anonymous", "peak")
    ]
    return f"| {name} | {' | '.join(cells)} |"


def measure(arguments: argparse.Namespace, kind: str) -> list[str]:
    """The rows of one kind of quantisation."""
    job = {
        "model": str(arguments.model),
        "quantization": kind,
        "tokens": PROMPT,
        "threads": arguments.threads,
    }
    rows = []
    began = time.perf_counter()
    start(sys.executable, "load_octavo.py", job)
    print(f"{kind}: first start {time.perf_counter() - began:.1f} s", file=sys.stderr)
    runs = [start(sys.executable, "load_octavo.py", job) for _ in range(arguments.repetitions)]
    rows.append(row(f"{kind}, Octavo", runs))
    if arguments.llamacpp_python:
        path = arguments.work / f"{arguments.model.name}-{kind}.gguf"
        if not path.exists():
            write_gguf(arguments.model, kind, path)
        job["model"] = str(path)
        start(arguments.llamacpp_python, "load_llamacpp.py", job)
        runs = [
            start(arguments.llamacpp_python, "load_llamacpp.py", job) for _ in range(arguments.repetitions)
        ]
        rows.append(row(f"{kind}, llama.cpp", runs))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["int4", "int8"])
    parser.add_argument("--work", type=Path, default=Path())
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--llamacpp-python", help="interpreter with llama-cpp-python")
    arguments = parser.parse_args()
    print("| | process start to first token | of which loading | resident | of it anonymous | peak |")
    print("|---|---|---|---|---|---|")
    for kind in arguments.kinds:
        print("\n".join(measure(arguments, kind)), flush=True)


if __name__ == "__main__":
    main()
