"""Ctrl-C as a flag: the first is held back, the second is not, and nobody else's handler is touched."""

import os
import signal
import threading

import pytest

from octavo.interrupt import InterruptFlag


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_one_is_held_back():
    with InterruptFlag() as flag:
        flag.raise_if_set()
        press_ctrl_c()
        assert flag.is_set
        with pytest.raises(KeyboardInterrupt):
            flag.raise_if_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_one_raises_at_once():
    with InterruptFlag() as flag:
        press_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
        assert flag.is_set


def test_an_application_keeps_its_own_handler(monkeypatch):
    calls = []
    previous = signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    try:
        with InterruptFlag() as flag:
            press_ctrl_c()
        assert (calls, flag.is_set) == ([1], False)
    finally:
        signal.signal(signal.SIGINT, previous)


def test_another_thread_changes_nothing():
    handlers = []

    def enter():
        with InterruptFlag():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
