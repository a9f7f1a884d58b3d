"""Ctrl-C as a flag: it is held back, however often it is pressed, and nobody else's handler is touched."""

import os
import signal
import threading

import pytest

from octavo.interrupt import InterruptFlag


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def test_it_is_held_back_however_often_it_is_pressed():
    with pytest.raises(KeyboardInterrupt), InterruptFlag() as flag:  # noqa: PT012
        flag.raise_if_set()
        press_ctrl_c()
        press_ctrl_c()
        assert flag.is_set
        flag.raise_if_set()
        pytest.fail("it did not raise")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_nobody_asked_for_is_raised_on_leaving():
    with pytest.raises(KeyboardInterrupt), InterruptFlag():
        press_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_is_not_replaced_by_it():
    with pytest.raises(ValueError, match="first"), InterruptFlag():  # noqa: PT012
        press_ctrl_c()
        raise ValueError("first")


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
