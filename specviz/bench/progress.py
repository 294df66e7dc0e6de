"""A progress bar over the runs of a benchmark, which predicts the time left."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from tqdm.auto import tqdm

from specviz.bench.grid import Cell
from specviz.bench.jobs import Job
from specviz.bench.outcome import Outcome

_LOOK = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class TimeLeft:
    """Predicts how long the missing runs take, from those that have ended.

    tqdm's own estimate takes all runs to be equally long, but those of a small batch take longest.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._left = list(jobs)
        self._seconds: dict[object, list[float]] = defaultdict(list)

    def ended(self, job: Job, seconds: float) -> None:
        self._left.remove(job)
        for key in _keys(job.cell):
            self._seconds[key].append(seconds)

    def seconds(self) -> float:
        total = 0.0
        for job in self._left:
            known = [self._seconds[key] for key in _keys(job.cell) if key in self._seconds]
            total += fmean(known[0])
        return total


def _keys(cell: Cell) -> Sequence[object]:
    """Return what predicts a run, the best first: the same cell, its B and lengths, any."""
    return cell, (cell.batch_size, cell.texts), "any"


def show_progress(
    jobs: Sequence[Job], outcomes: Iterable[tuple[Job, Outcome]], enabled: bool
) -> Iterator[tuple[Job, Outcome]]:
    """Yield the outcomes; a bar shows how many of the jobs have ended."""
    left = TimeLeft(jobs)
    last = time.monotonic()
    with tqdm(
        total=len(jobs), desc="bench", unit="run", disable=not enabled, bar_format=_LOOK
    ) as bar:
        for job, outcome in outcomes:
            now = time.monotonic()
            left.ended(job, now - last)
            last = now
            cell = f"{job.cell.strategy} at B = {job.cell.batch_size}"
            bar.set_postfix_str(f"about {left.seconds() / 60:.0f} min left, last {cell}")
            bar.update()
            yield job, outcome
