"""How long the phases take, without the consumer's own work.

It does not wait for the device until `milliseconds` is called.
"""

import time
from typing import Any

import numpy as np
import torch

from specviz.record.schema import PHASES


class Stopwatch:
    """Time the phases of rounds.

    On CUDA it records events on the stream. `milliseconds` waits for the device, `latest` does not.
    On a CPU it reads two clocks: the time that passed, and the time that this thread computed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []  # begin and end of each phase
        self._reported = 0  # phases that `latest` has returned

    def add(self, begin: Any) -> None:
        """Note that a phase has run since the moment `begin`."""
        self._spans.append((begin, self.mark()))

    def cut(self, rounds: int) -> None:
        """Forget what came after the first `rounds` rounds."""
        del self._spans[rounds * len(PHASES) :]

    def milliseconds(self) -> np.ndarray:
        """Return the time of each phase of each complete round: (rounds, 5) float32."""
        if self._cuda:
            torch.cuda.synchronize(self._device)
        rounds = len(self._spans) // len(PHASES)
        times = [self._since(*span) for span in self._spans[: rounds * len(PHASES)]]
        return np.array(times, dtype=np.float32).reshape(-1, len(PHASES))

    def spans_ms(self, origin: Any = None) -> np.ndarray:
        """Return begin and end of each phase of each complete round: (rounds, 5, 2) float64.

        origin: what `mark` returned at the moment from which they count; None for the first begin.
        """
        if self._cuda:
            torch.cuda.synchronize(self._device)
        if origin is None and self._spans:
            origin = self._spans[0][0]
        rounds = len(self._spans) // len(PHASES)
        spans = self._spans[: rounds * len(PHASES)]
        times = [[self._since(origin, mark) for mark in span] for span in spans]
        return np.array(times, dtype=np.float64).reshape(-1, len(PHASES), 2)

    def latest(self) -> list[list[float]]:
        """Return the five times of each complete round that is new and done on the device.

        On a CPU they leave out the time that other programs took, which no round is to blame for.
        """
        found = []
        while (stop := self._reported + len(PHASES)) <= len(self._spans):
            spans = self._spans[self._reported : stop]
            if not self._cuda:
                found.append([(end[1] - begin[1]) * 1e3 for begin, end in spans])
            elif spans[-1][1].query():
                found.append([self._since(*span) for span in spans])
            else:
                break
            self._reported = stop
        return found

    def mark(self) -> Any:
        """Return this moment, on the clock of the phases."""
        if not self._cuda:
            return time.perf_counter(), time.thread_time()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self._device))
        return mark

    def _since(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) if self._cuda else (end[0] - begin[0]) * 1e3
