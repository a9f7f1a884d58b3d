"""What a service of Type=notify tells its manager, over a real socket."""

import os
import socket

import pytest

from octavo.server.systemd import ALIVE, READY, ServiceManager


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.settimeout(30)
        bound.bind(str(tmp_path / "notify"))
        yield bound


def test_messages_arrive(listener):
    manager = ServiceManager({"NOTIFY_SOCKET": listener.getsockname()})
    manager.notify(READY, "STATUS=serving")
    assert listener.recv(1000) == b"READY=1\nSTATUS=serving"
    manager.notify(ALIVE)
    assert listener.recv(1000) == b"WATCHDOG=1"


def test_an_abstract_address_is_understood():
    name = f"octavo-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.settimeout(30)
        bound.bind(f"\0{name}")
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).notify(READY)
        assert bound.recv(1000) == b"READY=1"


def test_a_manager_that_is_not_there_is_no_error(tmp_path):
    ServiceManager().notify(READY)
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).notify(READY)


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_half_the_deadline_is_the_interval(environment, interval_s):
    assert ServiceManager({"NOTIFY_SOCKET": "/x", **environment}).watchdog_interval_s == interval_s
    assert ServiceManager(environment).watchdog_interval_s is None
