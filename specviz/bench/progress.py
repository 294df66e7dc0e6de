"""A progress bar over the runs of a benchmark."""

import time
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tqdm.auto import tqdm

from specviz.bench.grid import Cell
from specviz.bench.jobs import Job


class Progress:
    """A bar that predicts the time left from each cell's runs so far.

    A cell without a run counts as the mean of the cells at its B and lengths.
    """

    def __init__(self, jobs: Sequence[Job], enabled: bool) -> None:
        self._left = list(jobs)
        self._seconds: dict[Cell, list[float]] = defaultdict(list)
        self._last = time.monotonic()
        look = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        total = len(jobs)
        self._bar = tqdm(
            total=total, desc="bench", unit="run", disable=not enabled, bar_format=look
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def ended(self, job: Job) -> None:
        """Note that a run has ended."""
        now = time.monotonic()
        self._seconds[job.cell].append(now - self._last)
        self._last = now
        self._left.remove(job)
        minutes = self.seconds_left() / 60
        last = f"{job.cell.strategy} at B = {job.cell.batch_size}"
        self._bar.set_postfix_str(f"about {minutes:.0f} min left, last {last}")
        self._bar.update()

    def seconds_left(self) -> float:
        """Predict how long the missing runs take."""
        mean = {cell: sum(seconds) / len(seconds) for cell, seconds in self._seconds.items()}
        similar: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for cell, seconds in mean.items():
            similar[cell.batch_size, *cell.texts].append(seconds)
        total = 0.0
        for job in self._left:
            cell = job.cell
            known = similar.get((cell.batch_size, *cell.texts)) or list(mean.values())
            if cell in mean:
                total += mean[cell]
            elif known:
                total += sum(known) / len(known)
        return total
