"""Work for later in a live notebook: pictures for the day when its kernel is gone.

Contract: `later` waits until the page has come to rest, draws in a thread of its own, and hands the
picture over between two cells. Without a kernel's loop it does nothing. `Interrupts` is for work
that runs beside cells. Not known here: what is drawn or run.
"""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from IPython import get_ipython

# By then the page has drawn a chart and kept its own picture of it, which ours replaces.
REST_S = 2.0


def later(draw: Callable[[], bytes | None], keep: Callable[[bytes | None], Any]) -> bool:
    """Call `keep` with the PNG that `draw` returns, some time after the cell that runs now.

    Returns whether that is going to happen. keep: gets None if there is no picture.
    """
    loop = getattr(getattr(get_ipython(), "kernel", None), "io_loop", None)
    if loop is None:
        return False

    def begin() -> None:
        drawn = _worker().submit(_drawn, draw)
        # The callback runs in the worker, but outputs may be changed on the kernel's loop only.
        drawn.add_done_callback(lambda done: loop.add_callback(keep, done.result()))

    loop.add_callback(loop.call_later, REST_S, begin)
    return True


class Interrupts:
    """Notes that the kernel is interrupted while no cell runs, which ipykernel ignores.

    Attributes:
        came: whether it was.
    """

    def __init__(self) -> None:
        self.came = False

    def listen(self) -> None:
        """Listen for the signal. Call it after each pause: a cell restores the handler."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        # Python sets handlers in the main thread only; between cells ipykernel ignores SIGINT.
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note)

    def stop(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _note(self, _number: int, _frame: object) -> None:
        self.came = True


@cache
def _worker() -> ThreadPoolExecutor:
    # One thread: the renderer takes one picture at a time.
    return ThreadPoolExecutor(1, thread_name_prefix="specviz-pictures")


def _drawn(draw: Callable[[], bytes | None]) -> bytes | None:
    try:
        return draw()
    except Exception:  # the browser is gone, for instance; a notebook can do without the picture
        return None
