"""What systemd wants to be told by a service of ``Type=notify``. Does nothing where nobody asks for it."""

import contextlib
import os
import socket
from collections.abc import Mapping
from types import MappingProxyType

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class ServiceManager:
    """Tells the service manager what this process is up to.

    Args:
        environment: of the process; the manager says there where it listens.
    """

    def __init__(self, environment: Mapping[str, str] = _NO_ENVIRONMENT) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_us = _watchdog_us(environment)

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often the manager should hear `ALIVE`; ``None`` if it does not listen for it."""
        return self._watchdog_us / 2e6 if self._address and self._watchdog_us else None

    def notify(self, *messages: str) -> None:
        """Send messages, if somebody listens; a manager that does not hear is no reason to stop."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(messages).encode(), self._address)


def _watchdog_us(environment: Mapping[str, str]) -> int:
    """The deadline between two signs of life [µs], if it is meant for this process; else 0."""
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
    is_meant = pid is None or pid == str(os.getpid())
    return int(text) if is_meant and text.isdecimal() else 0
