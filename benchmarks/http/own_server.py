"""`octavo serve` in a process of its own, and what can be read about it."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from raw_http import ask

READY_S = 60.0


class Server:
    """A server that runs."""

    def __init__(self, url, process):
        self.url = url
        self._process = process

    def memory_mb(self):
        """Resident memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    async def metrics(self):
        """The metrics' values by name and labels."""
        text = (await ask(self.url, "/metrics")).body.decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {
            re.sub(r'model_name="[^"]*",?', "", name).replace("{}", ""): float(value) for name, value in lines
        }

    async def until_idle(self, patience_s=60.0):
        """Wait until nothing runs or waits; the metrics then."""
        for _ in range(int(patience_s / 0.1)):
            metrics = await self.metrics()
            if not metrics["vllm:num_requests_running"] + sum_of(metrics, "vllm:num_requests_waiting"):
                return metrics
            await asyncio.sleep(0.1)
        raise RuntimeError(f"requests still run or wait after {patience_s:.0f} s")


def sum_of(metrics, name):
    """The sum over all labels."""
    return sum(value for key, value in metrics.items() if key == name or key.startswith(f"{name}{{"))


@asynccontextmanager
async def serving(*options, log):
    """A server with these options of the command line, writing to the file ``log``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = _start([Path(sys.executable).with_name("octavo"), "serve", "--port", str(port), *options], log)
    try:
        server = Server(f"http://127.0.0.1:{port}", process)
        await _until_ready(server, process, log)
        yield server
    finally:
        process.terminate()
        code = process.wait(90)
        print(json.dumps({"exit_code_after_sigterm": code}))


def _start(command, log):
    with Path(log).open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


async def _until_ready(server, process, log):
    for _ in range(int(READY_S / 0.1)):
        if process.poll() is not None:
            break
        try:
            if (await ask(server.url, "/ready")).status == 200:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the server did not become ready; see {log}")
