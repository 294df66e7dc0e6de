"""Ctrl-C is received where a program waits for it, also when it comes in a finalizer."""

from __future__ import annotations

import signal
import threading

import pytest

from specviz.util.interrupt import interruptions_go_to


class InterruptsWhenDeleted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def not_here(error: KeyboardInterrupt) -> None:
    raise AssertionError(error)


def test_an_interruption_in_a_finalizer_is_received(capfd: pytest.CaptureFixture[str]) -> None:
    received: list[KeyboardInterrupt] = []
    with interruptions_go_to(received.append):
        InterruptsWhenDeleted()
    assert len(received) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capfd.readouterr().err == ""


def test_outside_the_block_it_is_raised_again() -> None:
    with interruptions_go_to(not_here):
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_handler_of_the_program_is_kept() -> None:
    mine: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: mine.append(number))
    try:
        with interruptions_go_to(not_here):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert mine == [signal.SIGINT]


def test_another_thread_leaves_the_handler_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with interruptions_go_to(not_here):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
