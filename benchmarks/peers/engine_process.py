"""`EngineProcess`: an adapter in a process of its own, stopped while another engine runs."""

import json
import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
LOAD_SECONDS = 900.0
CLOSE_SECONDS = 20.0


class EngineCommand(NamedTuple):
    """How an adapter is started."""

    python: str
    adapter: str
    """Name of a script in this folder, without ``adapter_`` and ``.py``."""
    arguments: tuple[str, ...]


class EngineError(Exception):
    """An engine has failed or given no answer in time; the message names it."""


class EngineProcess:
    """One loaded engine.

    Idle engines may spin (waiting threads of OpenMP do), so outside of `run` every process of the engine is
    stopped by SIGSTOP.

    Args:
        settle: seconds that it gets to itself once it is ready, as a server has before its first request:
            memory may still be made ready in the background.
        log: where the engine's own output goes.

    Raises:
        EngineError: it cannot be loaded.
    """

    def __init__(self, command: EngineCommand, *, threads: int, settle: float, log: Path) -> None:
        self._log = log
        script = FOLDER / f"adapter_{command.adapter}.py"
        with log.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [command.python, str(script), "--threads", str(threads), *command.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # one process group with all its children
            )
        self.name = command.adapter
        ready = self._read(time.monotonic() + LOAD_SECONDS).get("ready")
        if ready is None:
            raise EngineError(f"{self.name} did not say that it is ready; see {log}")
        self.name, self.version, self.settings = ready["name"], ready["version"], ready["settings"]
        time.sleep(settle)
        self._signal(signal.SIGSTOP)

    @property
    def process_id(self) -> int:
        """Of the adapter; its children belong to the engine as well."""
        return self._process.pid

    def run(self, prompts: list[list[int]], output_tokens: int, *, timeout: float) -> dict[str, Any]:
        """Wake the engine, give it one job, and stop it again.

        Raises:
            EngineError: it failed, or there was no answer in ``timeout`` seconds; the engine is gone then.
        """
        if self._process.poll() is not None:
            raise EngineError(f"{self.name} has ended; see {self._log}")
        self._signal(signal.SIGCONT)
        job = json.dumps({"prompts": prompts, "output_tokens": output_tokens})
        self._process.stdin.write(job + "\n")
        self._process.stdin.flush()
        answer = self._read(time.monotonic() + timeout)
        self._signal(signal.SIGSTOP)
        if "error" in answer:
            raise EngineError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process and its children; calling it again does nothing."""
        if self._process.poll() is None:
            self._signal(signal.SIGCONT)
        with suppress(OSError):
            self._process.stdin.close()  # the end of its jobs
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            if number != signal.SIGKILL:
                raise EngineError(f"{self.name} has ended; see {self._log}") from None

    def _read(self, deadline: float) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(deadline - time.monotonic(), 0)):
                self.close()
                raise EngineError(f"{self.name} gave no answer in time; see {self._log}")
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise EngineError(f"{self.name} has ended; see {self._log}")
        return json.loads(line)


def resident_bytes(root: int) -> int:
    """Peak resident memory of a process and its descendants, each at its own peak."""
    from octavo.bench.noise import read_processes

    processes = read_processes()
    pending, total = [root], 0
    while pending:
        process_id = pending.pop()
        total += _peak_bytes(process_id)
        pending += [child for child, process in processes.items() if process.parent == process_id]
    return total


def _peak_bytes(process_id: int) -> int:
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
