"""Real clients against a real server: builds their environments, starts `octavo serve`, runs every check.

    python tests/clients/run.py                   # all of them
    python tests/clients/run.py openai lm_eval    # some of them
    python tests/clients/run.py --url URL         # against a server that runs already

The environments are made once, under build/clients, from requirements/*.txt here.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from contextlib import contextmanager, nullcontext
from pathlib import Path

from octavo.models.default_model import DEFAULT_MODEL, cache_folder, find_cached

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / "build" / "clients"
CHECKS = {
    "openai": "api", "langchain": "api", "litellm": "api", "llm": "api", "kvlint": "api",
    "schemathesis": "api",
    "lm_eval": "lm_eval", "guidellm": "guidellm", "vllm_bench": "api",
}  # fmt: skip
"""Check to the environment that it runs in."""


def python_of(environment):
    """The interpreter of a client environment, which is made if need be."""
    folder = ENVIRONMENTS / environment
    python, done = folder / "bin" / "python", folder / "done"
    requirements = HERE / "requirements" / f"{environment}.txt"
    if not done.exists() or done.read_text() != requirements.read_text():
        print(f"installing {environment}", file=sys.stderr)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        done.write_text(requirements.read_text())
    return python


def tokenizer_folder(model_path):
    """The model's tokenizer in Hugging Face's form, for clients that want one."""
    folder = ENVIRONMENTS / "tokenizer"
    if not folder.exists():
        command = [python_of("guidellm"), HERE / "save_tokenizer.py", model_path, folder]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return folder


@contextmanager
def serving(model, model_path):
    """A server of our own: its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = (
        model,
        tokenizer_folder(model_path),
    )  # some clients know the model by its tokenizer's folder only
    command = [Path(sys.executable).with_name("octavo"), "serve", "--model", model, "--port", str(port)]
    command += ["--max-model-len", "1024"]  # so that a request without max_tokens ends in seconds
    command += [part for name in names for part in ("--served-model-name", str(name))]
    with (ENVIRONMENTS / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url, server)
            yield url
        finally:
            server.terminate()
            server.wait(60)


def wait_until_ready(url, server):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/ready"):
                return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"the server did not become ready; see {ENVIRONMENTS / 'server.log'}")


def run_check(name, url, model_path):
    with urllib.request.urlopen(f"{url}/v1/models") as response:
        model = json.load(response)["data"][0]["id"]
    environment = {
        **os.environ, "OCTAVO_URL": url, "OCTAVO_MODEL_NAME": model, "PYTHONPATH": str(HERE),
        "OCTAVO_TOKENIZER": str(tokenizer_folder(model_path)), "HF_HUB_OFFLINE": "1",
        "OPENAI_API_KEY": "none",
    }  # fmt: skip
    command = [python_of(CHECKS[name]), HERE / f"check_{name}.py"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {
            "client": name,
            "checks": 0,
            "failed": [f"no result, exit code {done.returncode}"],
            "figures": "",
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="*", choices=[[], *CHECKS], help="which; all if none is named")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--model", default="smollm2-135m", help="what the server serves")
    parser.add_argument(
        "--model-path", default=find_cached(DEFAULT_MODEL, cache_folder()), help="its GGUF file"
    )
    arguments = parser.parse_args()
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    names = arguments.checks or list(CHECKS)
    if not os.environ.get("OCTAVO_VLLM_PYTHON") and "vllm_bench" in names:
        print("vllm_bench is left out: OCTAVO_VLLM_PYTHON names no interpreter with vLLM", file=sys.stderr)
        names.remove("vllm_bench")
    with (
        serving(arguments.model, arguments.model_path)
        if not arguments.url
        else nullcontext(arguments.url) as url
    ):
        results = [run_check(name, url, arguments.model_path) for name in names]
    print("| Client | Checks | Result |\n|---|---|---|")
    for result in results:
        outcome = "all pass" if not result["failed"] else "failed: " + ", ".join(result["failed"])
        figures = f"; {result['figures']}" if result["figures"] else ""
        print(f"| {result['client']} | {result['checks']} | {outcome}{figures} |")
    sys.exit(any(result["failed"] for result in results))


if __name__ == "__main__":
    main()
