"""Work for later in a live notebook: pictures for the day when its kernel is gone.

Contract: `later` waits until the page has come to rest, draws in a thread of its own, and hands the
picture over between two cells. Without a kernel's loop it does nothing. Not known here: what is
drawn.
"""

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
        drawn.add_done_callback(lambda done: loop.add_callback(keep, done.result()))

    loop.add_callback(loop.call_later, REST_S, begin)
    return True


@cache
def _worker() -> ThreadPoolExecutor:
    # One thread: the renderer takes one picture at a time.
    return ThreadPoolExecutor(1, thread_name_prefix="specviz-pictures")


def _drawn(draw: Callable[[], bytes | None]) -> bytes | None:
    try:
        return draw()
    except Exception:  # the browser is gone, for instance; a notebook can do without the picture
        return None
