"""One start of llama.cpp for load_and_memory.py, in an interpreter that has llama-cpp-python."""

import json
import sys
import time
from pathlib import Path


def memory() -> dict[str, int]:
    """Resident memory of this process now and at its peak [bytes]."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return {
        "resident": int(values["VmRSS"].split()[0]) * 1024,
        "anonymous": int(values["RssAnon"].split()[0]) * 1024,
        "peak": int(values["VmHWM"].split()[0]) * 1024,
    }


def main() -> None:
    job = json.loads(sys.argv[1])
    from llama_cpp import Llama

    model = Llama(
        job["model"], n_ctx=2048, n_threads=job["threads"], n_threads_batch=job["threads"], verbose=False
    )
    loaded = time.time()
    token = next(iter(model.generate(job["tokens"], temp=0.0)))
    first = time.time()
    print(json.dumps({"loaded": loaded, "first_token": first, "token": int(token), **memory()}))


if __name__ == "__main__":
    main()
