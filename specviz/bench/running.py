"""`run_bench`: measure grids of cells, row by row onto the disk, and go on where a run was interrupted."""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd
from tqdm.auto import tqdm

from specviz.bench.cells import Work, measure, reference_of, take_turns, warm_up
from specviz.bench.grid import Cell, Grid
from specviz.bench.log import Log, Row
from specviz.bench.sources import LoadedPair, PairSource, prompt_ids
from specviz.bench.table import conditions, make_table
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.util.files import save_measured
from specviz.util.validate import require_int, short


@dataclass(frozen=True)
class Setting:
    """What holds for all cells.

    Attributes:
        sources: by their labels.
        prompts: texts or token ids; sources that draw their own do not look at them.
        limit: how many prompts, see `prompt_ids`.
        recording: whether each run is followed by a recorded one, to see what recording costs.
        turns: in how many turns cells of the same work share the machine, see `take_turns`; 1: one cell runs after the other.
    """

    sources: dict[str, PairSource]
    prompts: Sequence[Prompt]
    limit: int | None = None
    recording: bool = False
    turns: int = 1


@dataclass(frozen=True)
class Job:
    """One run of one cell; the first repetition is 0."""

    cell: Cell
    repetition: int

    def row(self, outcome: Row) -> Row:
        return {"cell": self.cell.key, "repetition": self.repetition, **outcome}


Runner = Callable[[Setting, Sequence[Job]], Iterator[tuple[Job, Row]]]


def run_bench(
    pairs: Pair | PairSource | Sequence[Pair | PairSource],
    prompts: Sequence[Prompt],
    grids: Grid | Sequence[Grid],
    path: Path | None = None,
    *,
    limit: int | None = None,
    recording: bool = False,
    turns: int = 1,
    fresh: bool = False,
    runner: Runner | None = None,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Run every cell of the grids and compare every text with decoding alone.

    Repetitions of the cells that share pair, device and dtype are interleaved; before its first run each cell runs once for warming up.

    Args:
        pairs: pairs in memory, or sources of pairs (`StoredPair`, `ShapePair`).
        prompts: texts or token ids; [] where all pairs are shapes.
        grids: a cell that stands in several of them is measured once.
        path: CSV file for the table; the conditions go beside it to .json. Until all is measured, each run's row is kept beside it in a
            file that ends in .jsonl.partial, and a benchmark that was interrupted goes on from there.
        limit: how many prompts (None: all; of a shape 32); see `prompt_ids`.
        recording: measure what recording costs, too.
        turns: in how many turns cells that differ in method, drafter or K alone share the machine. 1: they run one after the other. More: a
            machine whose speed changes within minutes slows all of them alike; a kill then costs all runs that take turns, and their
            caches are in memory together. Only in this process, and on a CPU: on a GPU, where work goes on behind the host's clock, cells
            run one after the other.
        fresh: forget an interrupted run.
        runner: where the cells run; None: in this process. See `OnRay`.

    Returns:
        (table, conditions); `make_table` says what they hold.

    Raises:
        ValueError: an argument cannot be used, the interrupted run was begun under other conditions, or all cells failed.
    """
    sources = _sources(pairs)
    setting = Setting(
        sources,
        prompts,
        None if limit is None else require_int("limit", limit),
        recording,
        require_int("turns", turns),
    )
    if setting.turns > 1 and runner is not None:
        raise ValueError(
            f"turns={turns}, but cells that a runner hands out run on their own; leave turns out, or the runner"
        )
    jobs = _jobs(list(sources), [grids] if isinstance(grids, Grid) else grids)
    if path is None:
        rows = [job.row(row) for job, row in _shown(runner or run_here, setting, jobs, progress)]
    else:
        with Log(path.with_suffix(".jsonl.partial"), _described(setting), fresh=fresh) as log:
            done = {_key(row["cell"], row["repetition"]) for row in log.rows}
            failed = {_key(row["cell"], 0)[0] for row in log.rows if row["failure"]}
            missing = [
                job
                for job in jobs
                if (key := _key(job.cell.key, job.repetition)) not in done and key[0] not in failed
            ]
            for job, row in _shown(runner or run_here, setting, missing, progress):
                log.add(job.row(row))
            rows = log.rows
    return _finish(rows, jobs, setting, path)


def _finish(
    rows: list[Row], jobs: Sequence[Job], setting: Setting, path: Path | None
) -> tuple[pd.DataFrame, dict[str, object]]:
    """The table of what was asked for; the log goes once the table is on the disk."""
    by_key = {_key(row["cell"], row["repetition"]): row for row in rows}
    asked = [by_key[key] for job in jobs if (key := _key(job.cell.key, job.repetition)) in by_key]
    if all(row["failure"] for row in asked):
        raise ValueError(
            f"no cell could be measured; the first failed because {asked[0]['failure']}"
        )
    table, found = (
        make_table(asked),
        conditions(asked, recording=setting.recording, turns=setting.turns),
    )
    if path is not None:
        save_measured(table, found, path)
        path.with_suffix(".jsonl.partial").unlink()
    return table, found


def run_here(setting: Setting, jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
    """Run the jobs in this process, with the models of one pair in memory at a time. A cell that failed is not repeated.

    Raises:
        ValueError: a device is not there. Whatever else models, prompts and references raise comes with the first row that needs them.
    """
    for label, device, dtype in dict.fromkeys(job.cell.models for job in jobs):
        setting.sources[label].check(device, dtype)
    return _rows(setting, jobs)


def _rows(setting: Setting, jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
    models, pair = None, None
    works: dict[object, Work] = {}
    warm: set[Cell] = set()
    failed: set[Cell] = set()
    for together in _together(jobs, setting.turns > 1):
        alive = [job for job in together if job.cell not in failed]
        for cell in (job.cell for job in alive):
            if pair is None or cell.models != models:
                pair, works, warm = None, {}, set()  # first let go of the other one
                pair, models = setting.sources[cell.pair].load(cell.device, cell.dtype), cell.models
            if cell.texts not in works:
                ids = ids_for(setting, cell, pair)
                works[cell.texts] = Work(pair, ids, reference_of(pair, ids, cell.max_new_tokens))
            if cell not in warm:
                warm_up(works[cell.texts], cell)
                warm.add(cell)
        for job, row in _measured(setting, works, alive):
            if row["failure"]:
                failed.add(job.cell)
            yield job, row


def _together(jobs: Sequence[Job], turns: bool) -> list[list[Job]]:
    """Which jobs run at a time: each on its own, or, taking turns, all that do the same work at the same B."""
    groups: dict[object, list[Job]] = defaultdict(list)
    for number, job in enumerate(jobs):
        cell = job.cell
        groups[
            (cell.models, job.repetition, cell.texts, cell.batch_size) if turns else number
        ].append(job)
    return list(groups.values())


def _measured(
    setting: Setting, works: dict[object, Work], jobs: Sequence[Job]
) -> Iterator[tuple[Job, Row]]:
    """Run these jobs, which have their work in common: on a CPU in turns, if that was asked for."""
    if not jobs:
        return
    work, cells = works[jobs[0].cell.texts], [job.cell for job in jobs]
    if setting.turns == 1 or work.pair.device.type != "cpu":
        for job in jobs:
            yield job, measure(work, job.cell, recording=setting.recording)
    else:
        for place, row in take_turns(work, cells, setting.turns, recording=setting.recording):
            yield jobs[place], row


def ids_for(setting: Setting, cell: Cell, pair: Pair) -> list[list[int]]:
    """The prompts of a cell."""
    return prompt_ids(
        setting.sources[cell.pair], pair, setting.prompts, setting.limit, cell.prompt_tokens
    )


def _sources(pairs: Pair | PairSource | Sequence[Pair | PairSource]) -> dict[str, PairSource]:
    given = list(pairs) if isinstance(pairs, Sequence) else [pairs]
    if not given:
        raise ValueError("pairs=[] is empty; pass at least one pair")
    named: dict[str, PairSource] = {}
    for i, pair in enumerate(given):
        source = LoadedPair(pair, f"own {i}" if i else "own") if isinstance(pair, Pair) else pair
        if not isinstance(source, PairSource):
            raise ValueError(
                f"pairs[{i}]={short(pair)} is no pair; pass a Pair, or a source of one such as StoredPair() or ShapePair(name)"
            )
        if source.label in named:
            raise ValueError(f"pairs names {source.label!r} twice; name it once")
        named[source.label] = source
    return named


def _jobs(labels: Sequence[str], grids: Sequence[Grid]) -> list[Job]:
    """Pair by pair; within one, all cells of all grids once, then all again."""
    if not grids:
        raise ValueError("grids=[] is empty; pass at least one Grid")
    wanted: dict[Cell, int] = {}
    for label in labels:
        for grid in grids:
            for cell in grid.cells(label):
                wanted[cell] = max(grid.repetitions, wanted.get(cell, 0))
    models = list(dict.fromkeys(cell.models for cell in wanted))
    jobs = [Job(cell, i) for cell, repetitions in wanted.items() for i in range(repetitions)]
    return sorted(jobs, key=lambda job: (models.index(job.cell.models), job.repetition))


def _key(cell: dict[str, object], repetition: int) -> tuple[str, int]:
    return json.dumps(cell, sort_keys=True), repetition


def _described(setting: Setting) -> dict[str, object]:
    """Under what the rows of one file have to have been measured."""
    texts = hashlib.sha256(
        json.dumps([list(each) for each in setting.prompts]).encode()
    ).hexdigest()[:16]
    libraries = {name: version(name) for name in ("specviz", "torch", "transformers")}
    return {
        "prompts": texts,
        "limit": setting.limit,
        "recording": setting.recording,
        "turns": setting.turns,
        "versions": libraries,
    }


def _shown(
    runner: Runner, setting: Setting, jobs: Sequence[Job], progress: bool
) -> Iterator[tuple[Job, Row]]:
    rows = runner(setting, jobs)
    with _Progress(jobs, enabled=progress) as bar:
        for job, row in rows:
            bar.see(job)
            yield job, row


class _Progress:
    """A bar over runs. The time left is that of the cells' runs so far; an unknown cell counts as the mean of the known ones at its B."""

    def __init__(self, jobs: Sequence[Job], enabled: bool) -> None:
        self._left = list(jobs)
        self._seconds: dict[Cell, list[float]] = defaultdict(list)
        self._last = time.monotonic()
        look = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self._bar = tqdm(
            total=len(jobs), desc="bench", unit="run", disable=not enabled, bar_format=look
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

    def see(self, job: Job) -> None:
        now = time.monotonic()
        self._seconds[job.cell].append(now - self._last)
        self._last = now
        self._left.remove(job)
        self._bar.set_postfix_str(
            f"about {self.seconds_left() / 60:.0f} min left, last {job.cell.strategy} at B = {job.cell.batch_size}"
        )
        self._bar.update()

    def seconds_left(self) -> float:
        """What the missing runs will take, by those that were seen."""
        mean = {cell: sum(seconds) / len(seconds) for cell, seconds in self._seconds.items()}
        alike: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for cell, seconds in mean.items():
            alike[cell.batch_size, *cell.texts].append(seconds)
        overall = sum(mean.values()) / len(mean) if mean else 0.0

        def expected(cell: Cell) -> float:
            known = alike.get((cell.batch_size, *cell.texts))
            return mean.get(cell, sum(known) / len(known) if known else overall)

        return sum(expected(job.cell) for job in self._left)
