"""How far Octavo and llama.cpp are from float32 on the same file and prompts; not a timing.

    python benchmarks/accuracy.py --model FILE.gguf [--kv-dtype float16 int8] [--llamacpp-python PYTHON]

Both are given every token of the prompts and continuations in tests/goldens/smollm2.json (teacher forcing)
and compared with the log-probabilities there, which are the same file's weights in float32. llama.cpp runs
through its Python binding, in the interpreter that has it.
"""

import argparse
import json
import subprocess
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).resolve().parent
GOLDENS = FOLDER.parent / "tests" / "goldens" / "smollm2.json"
PEER = FOLDER / "accuracy_llamacpp.py"


class Accuracy(NamedTuple):
    """One engine against the goldens, over all scored positions."""

    mean_error: float
    """Mean absolute difference of a token's log-probability [nats]."""
    p99_error: float
    largest_error: float
    top1: float
    """Share of positions whose most likely token is the golden one."""
    num_positions: int


class Scores(NamedTuple):
    """What an engine makes of one sequence."""

    logprobs: list[float]
    """[num_tokens - 1]; of each token but the first."""
    top1: list[int]
    """[num_tokens]; the most likely token after each."""


def sequences(goldens: list[dict[str, Any]]) -> list[list[int]]:
    """Prompt and continuation of each golden."""
    return [golden["ids"] + golden["continuation"] for golden in goldens]


def compare(goldens: list[dict[str, Any]], scores: list[Scores]) -> Accuracy:
    """Every position of every golden."""
    errors = np.concatenate(
        [
            np.abs(np.array(score.logprobs) - np.array(golden["token_logprob"][1:]))
            for golden, score in zip(goldens, scores, strict=True)
        ]
    )
    equal = np.concatenate(
        [
            np.array(score.top1) == np.array(golden["top_ids"])[:, 0]
            for golden, score in zip(goldens, scores, strict=True)
        ]
    )
    return Accuracy(
        mean_error=float(errors.mean()),
        p99_error=float(np.quantile(errors, 0.99)),
        largest_error=float(errors.max()),
        top1=float(equal.mean()),
        num_positions=len(errors),
    )


def score_octavo(
    model: str, token_lists: list[list[int]], *, isa: str, kv_dtype: str
) -> tuple[str, list[Scores]]:
    """Through the native kernels, all sequences in one step."""
    from octavo.kernels.interpreter import StepInput
    from octavo.kernels.native import NativeInterpreter
    from octavo.kernels.reference_sampling import log_softmax
    from octavo.kv.spec import KVCacheSpec
    from octavo.models.default_model import resolve_model_path
    from octavo.models.loaded import load_model

    loaded = load_model(resolve_model_path(model))
    spec = loaded.spec
    kv_spec = KVCacheSpec(
        block_size=16,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype=kv_dtype,
    )
    lengths = np.array([len(tokens) for tokens in token_lists], np.int32)
    ends = np.cumsum(lengths, dtype=np.int32)
    blocks_each = -(-int(lengths.max()) // kv_spec.block_size)
    num_blocks = blocks_each * len(lengths)
    interpreter = NativeInterpreter(
        loaded.program, kv_spec, num_blocks, max_num_tokens=int(ends[-1]), max_logit_rows=1, isa=isa
    )
    step = StepInput(
        token_ids=np.concatenate(token_lists, dtype=np.int32),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        query_start_loc=np.concatenate([[0], ends], dtype=np.int32),
        seq_lens=lengths,
        block_tables=np.arange(num_blocks, dtype=np.int32).reshape(len(lengths), blocks_each),
        logit_rows=np.arange(ends[-1], dtype=np.int32),
    )
    logits = np.split(interpreter.run(step).copy(), ends[:-1])
    name = f"Octavo, {interpreter.isa}, {kv_dtype} K/V"
    interpreter.close()
    scores = []
    for tokens, rows in zip(token_lists, logits, strict=True):
        following = [float(log_softmax(row)[token]) for row, token in zip(rows, tokens[1:], strict=False)]
        scores.append(Scores(following, rows.argmax(axis=1).tolist()))
    return name, scores


def score_llamacpp(python: str, model: str, token_lists: list[list[int]]) -> tuple[str, list[Scores]]:
    """In the interpreter that has the binding."""
    job = json.dumps({"model": str(Path(model).resolve()), "sequences": token_lists})
    result = subprocess.run([python, str(PEER)], input=job, stdout=subprocess.PIPE, text=True, check=True)
    answer = json.loads(result.stdout.splitlines()[-1])
    return answer["name"], [Scores(*score) for score in answer["scores"]]


def table(rows: dict[str, Accuracy]) -> str:
    """Markdown."""
    lines = [
        "| engine | mean abs. Δ logprob [nats] | 99th percentile | largest | equal top-1 | positions |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {a.mean_error:.4f} | {a.p99_error:.3f} | {a.largest_error:.3f} | {a.top1:.2%} | "
        f"{a.num_positions:,} |"
        for name, a in rows.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="the file that the goldens were made from")
    parser.add_argument("--isa", nargs="+", default=["auto"], help="instruction sets to score")
    parser.add_argument("--kv-dtype", nargs="+", default=["float16"], help="number formats of the KV cache")
    parser.add_argument("--llamacpp-python", help="interpreter with llama-cpp-python")
    arguments = parser.parse_args()
    goldens = json.loads(GOLDENS.read_text(encoding="utf-8"))
    token_lists = sequences(goldens)
    rows = {}
    for isa, kv_dtype in product(arguments.isa, arguments.kv_dtype):
        name, scores = score_octavo(arguments.model, token_lists, isa=isa, kv_dtype=kv_dtype)
        rows[name] = compare(goldens, scores)
    if arguments.llamacpp_python:
        from octavo.models.default_model import resolve_model_path

        path = str(resolve_model_path(arguments.model))
        name, scores = score_llamacpp(arguments.llamacpp_python, path, token_lists)
        rows[name] = compare(goldens, scores)
    print(table(rows))


if __name__ == "__main__":
    main()
