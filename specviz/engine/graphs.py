"""Replay the phases of a round without Python: a CUDA graph per phase, number of rows and window.

A phase can be captured if it depends on nothing but tensors that stay in place (rows, lengths,
starts, K/V slabs), has fixed shapes, and reads no value on the host. Its result is then the same
memory at each replay: it is valid until the phase runs again.
"""

import warnings
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from specviz.engine.draft import Draft

T = TypeVar("T")
Capture = Callable[[Callable[[], Any]], Callable[[], Any]]

WINDOW = 128  # captured windows are multiples of so many slots, so that there are few of them


class PhaseGraphs:
    """Run functions, and replay them from the third call under the same key on.

    The first call is an ordinary one, in which libraries load what they need. The second is
    captured, which computes nothing, and then replayed.

    Attributes:
        cold_calls: how many calls ran or captured a function while capturing is on. Such a call
            takes much longer than a replay.
    """

    def __init__(self, capture: Capture | None = None) -> None:
        """`capture` turns a function into its replay, as `CudaGraphs()` does; None: no replays."""
        self.cold_calls = 0
        self._capture = capture
        self._seen: set[Hashable] = set()
        self._replays: dict[Hashable, Callable[[], Any]] = {}
        self._buffers: dict[torch.Size, Tensor] = {}

    @property
    def active(self) -> bool:
        """Whether functions are captured."""
        return self._capture is not None

    def run(self, key: Hashable, function: Callable[[], T]) -> T:
        """Return what `function` returns.

        `key` holds all that the function depends on besides tensors that stay in place.
        """
        if self._capture is None:
            return function()
        if key in self._replays:
            return self._replays[key]()
        self.cold_calls += 1
        # Libraries allocate and load on first use, which a capture must not contain.
        if key not in self._seen:
            self._seen.add(key)
            return function()
        try:
            replay = self._capture(function)
        except torch.OutOfMemoryError:
            raise  # the batch is halved for that
        except Exception as error:
            # A model may do anything that cannot be captured. It can still run.
            self._give_up(error)
            return function()
        self._replays[key] = replay
        return replay()

    def static_copy(self, value: Tensor) -> Tensor:
        """Return a copy of `value` in a buffer that every call with its shape uses.

        It is for a tensor that is new each round and that a captured function reads.
        """
        if not self.active:
            return value
        # A replay reads the addresses of its capture, so new values have to go to the old place.
        return self._buffers.setdefault(value.shape, value).copy_(value)

    def _give_up(self, error: Exception) -> None:
        self._capture = None
        self._replays.clear()
        reason = " ".join(str(error).split())[:200]
        warnings.warn(
            f"the round cannot be captured ({type(error).__name__}: {reason}); it runs uncaptured",
            stacklevel=3,
        )


class CudaGraphs:
    """Capture functions as CUDA graphs that share one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Graphs of one run never run at the same time, so they can share memory.
        self._pool = torch.cuda.graph_pool_handle()
        # The default stream of torch.cuda.graph stays on the device of the process's first capture.
        self._stream = torch.cuda.Stream(device)

    def __call__(self, function: Callable[[], T]) -> Callable[[], T]:
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream(self._device)
        with warnings.catch_warnings(), torch.cuda.device(self._device):
            # Drafting nothing launches nothing.
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            try:
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                    result = function()
            finally:
                # A capture that fails at its end leaves its own stream current.
                torch.cuda.set_stream(before)

        def replay() -> T:
            graph.replay()
            return result

        return replay


def key_of(phase: Callable[..., Any], *arguments: Any) -> Hashable:
    """Return a key for `PhaseGraphs.run` of phase(*arguments).

    A graph replays fixed shapes and the host's numbers of its capture. All of them that may differ
    from call to call are in the key.
    """
    key: list[Any] = [phase.__qualname__]
    values: list[Any] = []
    for argument in arguments:
        values += vars(argument).values() if isinstance(argument, Draft) else [argument]
    for value in values:
        if isinstance(value, Tensor):
            key.append(value.shape)
        elif value is None or isinstance(value, int):
            key.append(value)
    return tuple(key)


def next_window(window: int, slots: int) -> int:
    """Return `window` rounded up to a multiple of WINDOW, at most `slots`."""
    return min(-(-window // WINDOW) * WINDOW, slots)
