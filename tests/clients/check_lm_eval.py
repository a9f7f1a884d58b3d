"""lm-evaluation-harness: a small local task over echo and logprobs, with the same score cold and warm."""

import json
import subprocess
import sys
import tempfile
import urllib.request
from importlib.metadata import version
from pathlib import Path

from checking import BASE_URL, MODEL, TOKENIZER, report

QUESTIONS = (
    ("The capital of France is", ["Paris", "a river", "seventeen"], 0),
    ("Water freezes at a temperature of zero degrees", ["Celsius", "bananas", "o'clock"], 0),
    ("A week has", ["nine hundred days", "seven days", "no colour"], 1),
    ("The opposite of hot is", ["seven", "cold", "Tuesday"], 1),
    ("Bees make", ["honey", "concrete", "laws"], 0),
    ("The sun rises in the", ["kitchen", "spoon", "east"], 2),
    ("Two plus two is", ["purple", "four", "a mountain"], 1),
    ("Fish live in", ["water", "books", "Thursdays"], 0),
    ("A triangle has", ["three sides", "a mother", "wet feet"], 0),
    ("The first month of the year is", ["soup", "loud", "January"], 2),
)
TASK = """\
task: octavo_facts
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
doc_to_choice: "{{{{choices}}}}"
target_delimiter: " "
metric_list:
  - metric: acc
  - metric: acc_norm
metadata:
  version: 1
"""


def evaluate(folder, name):
    output = folder / name
    arguments = {
        "base_url": f"{BASE_URL}/v1/completions", "model": MODEL, "tokenizer": TOKENIZER,
        "tokenizer_backend": "huggingface", "num_concurrent": 4, "max_retries": 1, "max_length": 1024,
    }  # fmt: skip
    command = [
        str(Path(sys.executable).with_name("lm_eval")), "run", "--model", "local-completions",
        "--model_args", ",".join(f"{key}={value}" for key, value in arguments.items()),
        "--tasks", "octavo_facts", "--include_path", str(folder), "--output_path", str(output),
        "--log_samples",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-6000:])
    [results] = output.rglob("results_*.json")
    [samples] = output.rglob("samples_*.jsonl")
    lines = sorted((json.loads(line) for line in samples.read_text().splitlines()), key=lambda s: s["doc_id"])
    scores = json.loads(results.read_text())["results"]["octavo_facts"]
    return scores["acc,none"], [line["filtered_resps"] for line in lines]


def reset_prefix_cache():
    urllib.request.urlopen(urllib.request.Request(f"{BASE_URL}/reset_prefix_cache", method="POST")).close()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "facts.jsonl"
        rows = [{"question": q, "choices": c, "answer": a} for q, c, a in QUESTIONS]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "octavo_facts.yaml").write_text(TASK.format(data=data))
        reset_prefix_cache()
        cold, cold_samples = evaluate(folder, "cold")
        warm, warm_samples = evaluate(folder, "warm")
    failed = []
    if (cold, cold_samples) != (warm, warm_samples):
        failed.append(f"cold {cold}, warm {warm}: not the same")
    if cold < 0.5:
        failed.append(f"accuracy {cold}: no better than guessing")
    figures = (
        f"accuracy {cold:.2f} cold, {warm:.2f} warm; log-likelihoods equal: {cold_samples == warm_samples}"
    )
    report(f"lm_eval {version('lm_eval')}", 2, failed, figures)


if __name__ == "__main__":
    main()
