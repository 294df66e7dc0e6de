"""How long the phases take, without the consumer's own work, and without waiting for the device before somebody asks."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from specviz.engine.events import Event
from specviz.record.schema import PHASES


class Stopwatch:
    """Times what happens between the consumer's asking for an event and getting it.

    On CUDA it records events on the stream; `milliseconds` waits for the device, `latest` does not.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._cuda = device, device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []
        self._told = 0

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(torch.cuda.current_stream(self._device))
        return mark

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass `events` on, timing each."""
        iterator = iter(events)
        while True:
            begin = self._mark()
            event = next(iterator, None)
            if event is None:
                return
            self._spans.append((begin, self._mark()))
            yield event

    def cut(self, rounds: int) -> None:
        """Forget what came after the first `rounds` rounds."""
        del self._spans[rounds * len(PHASES) :]

    def milliseconds(self) -> np.ndarray:
        """(rounds, 5) float32: time of each phase of each whole round."""
        if self._cuda:
            torch.cuda.synchronize(self._device)
        whole = len(self._spans) // len(PHASES) * len(PHASES)
        return np.array([self._span(i) for i in range(whole)], dtype=np.float32).reshape(
            -1, len(PHASES)
        )

    def latest(self) -> list[list[float]]:
        """The five times of each whole round that was not told before and that the device is done with."""
        told, step = [], len(PHASES)
        while self._told + step <= len(self._spans) and (
            not self._cuda or self._spans[self._told + step - 1][1].query()
        ):
            told.append([self._span(i) for i in range(self._told, self._told + step)])
            self._told += step
        return told

    def _span(self, i: int) -> float:
        begin, end = self._spans[i]
        return float(begin.elapsed_time(end)) if self._cuda else (end - begin) * 1e3
