"""Phases of a round, replayed without Python: one CUDA graph for each phase, number of rows and window.

A phase may be captured if it reads nothing but tensors that stay where they are (rows, lengths, starts, K/V slabs), has fixed shapes, and
reads no value on the host. What it returns is then the same memory at each replay: valid until the phase runs again.
"""

import warnings
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Capture = Callable[[Callable[[], Any]], Callable[[], Any]]

WINDOW = 128  # captured windows are multiples of so many slots, so that there are few of them


class PhaseGraphs:
    """Runs functions, and from the third time on replays what it captured of them.

    The first run under a key is an ordinary one, in which libraries load what they need; the second one is captured, which computes
    nothing, and replayed.

    Attributes:
        cold: how many calls were no mere replay, since nothing had been captured yet; such a call takes much longer.
    """

    def __init__(self, capture: Capture | None = None) -> None:
        """`capture` turns a function into one that replays it, `CudaGraphs()` for instance; None: every call runs the function."""
        self.cold = 0
        self._capture = capture
        self._seen: set[Hashable] = set()
        self._kept: dict[Hashable, Callable[[], Any]] = {}
        self._places: dict[torch.Size, Tensor] = {}

    @property
    def active(self) -> bool:
        """Whether anything is captured."""
        return self._capture is not None

    def run(self, key: Hashable, function: Callable[[], T]) -> T:
        """What `function` returns. All that it depends on besides tensors that stay in place has to be in `key`."""
        if self._capture is None:
            return function()
        if key not in self._kept:
            self.cold += 1
            if key not in self._seen:
                self._seen.add(key)
                return function()
            try:
                self._kept[key] = self._capture(function)
            except torch.OutOfMemoryError:
                raise
            except (
                Exception
            ) as error:  # whatever a model does that cannot be captured, it can still run
                self._capture = None
                self._kept.clear()
                reason = " ".join(str(error).split())[:200]
                warnings.warn(
                    f"the round cannot be captured ({type(error).__name__}: {reason}); it runs uncaptured",
                    stacklevel=2,
                )
                return function()
        result: T = self._kept[key]()
        return result

    def static_copy(self, value: Tensor) -> Tensor:
        """`value` in memory that later calls with the same shape use again: for what is new each round and read by a captured function."""
        return self._places.setdefault(value.shape, value).copy_(value) if self.active else value


class CudaGraphs:
    """Captures functions as CUDA graphs that share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(
            device
        )  # its own: that of torch.cuda.graph stays on the device of the process's first capture

    def __call__(self, function: Callable[[], T]) -> Callable[[], T]:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        with warnings.catch_warnings(), torch.cuda.device(self._device):
            warnings.filterwarnings(
                "ignore", "The CUDA Graph is empty"
            )  # drafting nothing launches nothing
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                    result = function()
            finally:
                torch.cuda.set_stream(
                    before
                )  # a capture that fails at its end leaves its own stream behind

        def again() -> T:
            graph.replay()
            return result

        return again


def next_window(window: int, slots: int) -> int:
    """`window` rounded up to a multiple of WINDOW, at most all `slots`."""
    return min(-(-window // WINDOW) * WINDOW, slots)
