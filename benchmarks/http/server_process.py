"""`ServerProcess`: a server under test, started, stopped while another one is measured, and ended."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

START_SECONDS = 900.0
END_SECONDS = 30.0


class StartError(Exception):
    """A server did not come up; the message names its log."""


class ServerProcess:
    """One server with a process group of its own.

    Args:
        name: in tables.
        command: words; ``{port}`` stands for the port it is given.
        log: where its own output goes.

    Raises:
        StartError: it does not answer ``/v1/models`` in time, or ends before.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        with log.open("a", encoding="utf-8") as output:
            self._process = subprocess.Popen(
                [word.replace("{port}", str(port)) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.model = self._wait_for_model()

    @property
    def process_id(self) -> int:
        """Of the server; its children belong to it as well."""
        return self._process.pid

    def stop(self) -> None:
        """Let it use no processor time until `wake`."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and its children; calling it again does nothing."""
        with suppress(ProcessLookupError):
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def _wait_for_model(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with (
                suppress(OSError, ValueError, LookupError),
                urllib.request.urlopen(f"{self.url}/v1/models", timeout=5) as answer,
            ):
                return str(json.load(answer)["data"][0]["id"])
            time.sleep(0.25)
        self.close()
        raise StartError(f"{self.name} did not come up; see {self._log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
