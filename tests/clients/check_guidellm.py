"""guidellm: four streams of synthetic text, every request successful.

It takes the name of the model for that of a tokenizer, so that the server has to serve it under that name.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from checking import BASE_URL, TOKENIZER, report

NUM_REQUESTS = 16


def benchmark(request_format):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        backend = {
            "kind": "openai_http",
            "target": BASE_URL,
            "model": TOKENIZER,
            "request_format": request_format,
        }
        options = {
            "backend": json.dumps(backend),
            "profile": "kind=concurrent,streams=4",
            "constraint": f"kind=max_requests,count={NUM_REQUESTS}",
            "data": "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
            "output": f"kind=json,path={path}",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        command = [str(Path(sys.executable).with_name("guidellm")), "run", *arguments, "--disable-console"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-4000:])
        [result] = json.loads(path.read_text())["benchmarks"]
        return result["metrics"]["request_totals"]


def main():
    failed, figures = [], []
    for request_format in ("/v1/completions", "/v1/chat/completions"):
        totals = benchmark(request_format)
        if totals["successful"] != NUM_REQUESTS or totals["errored"]:
            failed.append(f"{request_format}: {totals}")
        figures.append(f"{request_format}: {totals['successful']} of {NUM_REQUESTS}")
    report(f"guidellm {version('guidellm')}", 2, failed, "; ".join(figures))


if __name__ == "__main__":
    main()
