"""Receive Ctrl-C where a program waits for it.

Contract: an interruption is never lost. Raised by Python while a finalizer runs, it would be.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptions_go_to(receive: Callable[[KeyboardInterrupt], None]) -> Iterator[None]:
    """Have Ctrl-C call `receive` inside this block, instead of raising KeyboardInterrupt there.

    Nothing changes outside the main thread, where Python raises none, and in a program that handles
    Ctrl-C in its own way.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: receive(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
