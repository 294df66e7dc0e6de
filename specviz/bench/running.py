"""`run_bench`: measure grids of cells, keep each run on disk, go on after an interruption."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import pandas as pd
import torch
from tqdm.auto import tqdm

from specviz.bench.cells import Outcome, SharedWork, reference_of, take_turns, warm_up, with_memory
from specviz.bench.grid import Cell, Grid
from specviz.bench.log import Log, Measurement, cell_key
from specviz.bench.sources import LoadedPair, PairSource, prompt_ids
from specviz.bench.table import conditions, make_table
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.util.files import save_measured
from specviz.util.validate import (
    is_list,
    require_bool,
    require_function,
    require_int,
    require_kind,
    require_list,
    require_path,
    short,
)

MAX_PROMPTS = 1_000_000
MAX_TURNS = 1_000_000


@dataclass(frozen=True)
class Setting:
    """What holds for all cells.

    Attributes:
        sources: of pairs, by their labels.
        prompts: texts or token ids; sources that draw their own ignore them.
        limit: how many prompts, see `prompt_ids`.
        recording: whether a recorded run follows each run, to see what recording costs.
        turns: slices into which each cell is cut, so that cells of the same work alternate (see
            `take_turns`); 1: one cell runs after the other.
    """

    sources: dict[str, PairSource]
    prompts: Sequence[Prompt]
    limit: int | None = None
    recording: bool = False
    turns: int = 1

    def prompt_ids(self, cell: Cell, pair: Pair) -> list[list[int]]:
        """Return the prompts of a cell as token ids."""
        source = self.sources[cell.pair]
        return prompt_ids(source, pair, self.prompts, self.limit, cell.prompt_tokens)

    def check(self, jobs: Sequence["Job"]) -> None:
        """Raise ValueError or FileNotFoundError if a device or a model is not there."""
        for label, device, dtype in dict.fromkeys(job.cell.models for job in jobs):
            self.sources[label].check(device, dtype)

    def conditions(self) -> dict[str, object]:
        """Return the conditions that all runs in one log share."""
        prompts = json.dumps([list(prompt) for prompt in self.prompts])
        return {
            "prompts": hashlib.sha256(prompts.encode()).hexdigest()[:16],
            "limit": self.limit,
            "recording": self.recording,
            "turns": self.turns,
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("specviz", "torch", "transformers")},
        }


@dataclass(frozen=True)
class Job:
    """One run of one cell. The first repetition is 0."""

    cell: Cell
    repetition: int

    @property
    def key(self) -> tuple[str, int]:
        """What finds the run in a log."""
        return cell_key(self.cell.key), self.repetition

    def measurement(self, outcome: Outcome) -> Measurement:
        """Return what the log keeps of the run."""
        return {"cell": self.cell.key, "repetition": self.repetition, **outcome}


Outcomes = Iterator[tuple[Job, Outcome]]
Runner = Callable[[Setting, Sequence[Job]], Outcomes]


def run_bench(
    pairs: Pair | PairSource | Sequence[Pair | PairSource],
    prompts: Sequence[Prompt],
    grids: Grid | Sequence[Grid],
    path: str | os.PathLike[str] | None = None,
    *,
    limit: int | None = None,
    recording: bool = False,
    turns: int = 1,
    fresh: bool = False,
    runner: Runner | None = None,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Run every cell of the grids and compare every text with decoding alone.

    Repetitions of the cells that share pair, device and dtype are interleaved. Each cell runs once
    to warm up before its first run.

    Args:
        pairs: pairs in memory, or sources of pairs (`StoredPair`, `ShapePair`).
        prompts: texts or token ids; [] if all pairs are shapes.
        grids: a cell in several of them is measured once.
        path: CSV file for the table; the conditions go next to it, to .json. Until all is
            measured, each run is kept next to it in a file that ends in .jsonl.partial, and an
            interrupted benchmark goes on from there.
        limit: how many prompts (None: all; of a shape 32), see `prompt_ids`.
        recording: measure what recording costs, too.
        turns: in how many turns cells that differ in method, drafter or K alone share the machine.
            1: they run one after the other. More: a machine whose speed changes within minutes
            slows all of them alike; a kill then costs all runs that take turns, and their caches
            are in memory together. Only in this process and on a CPU: on a GPU, where work goes on
            after the host's call returns, cells run one after the other.
        fresh: discard an interrupted run.
        runner: where the cells run; None: in this process. See `OnRay`.

    Returns:
        (table, conditions); see `make_table`.

    Raises:
        ValueError: an argument cannot be used, the interrupted run was begun under other
            conditions, or all cells failed.
    """
    sources = sources_of(pairs)
    for name, flag in {"recording": recording, "fresh": fresh, "progress": progress}.items():
        require_bool(name, flag)
    if not is_list(prompts) or prompts:  # pairs of shapes draw their own
        require_list("prompts", prompts)
    if limit is not None:
        require_int("limit", limit, maximum=MAX_PROMPTS)
    turns = require_int("turns", turns, maximum=MAX_TURNS)
    if runner is not None:
        require_function("runner", runner, "pass OnRay(), or None for this process")
        if turns > 1:
            raise ValueError(
                f"turns={turns}, but a runner's cells run on their own; "
                "leave turns out, or the runner"
            )
    setting = Setting(sources, prompts, limit, recording, turns)
    run = runner or run_here
    jobs = jobs_of(list(sources), [grids] if isinstance(grids, Grid) else grids)
    if runner is None:  # the places where a runner's cells run are not known here
        setting.check(jobs)
    if path is None:
        outcomes = _watched(run(setting, jobs), len(jobs), progress)
        return _table([job.measurement(outcome) for job, outcome in outcomes], jobs, setting)
    path = require_path("path", path)
    log_path = path.with_suffix(".jsonl.partial")
    with Log(log_path, setting.conditions(), fresh=fresh) as log:
        # What failed stays failed.
        done = _by_key(log.measurements)
        failed = {key for (key, _), each in done.items() if each["failure"]}
        missing = [job for job in jobs if job.key not in done and job.key[0] not in failed]
        for job, outcome in _watched(run(setting, missing), len(missing), progress):
            log.add(job.measurement(outcome))
    table, found = _table(log.measurements, jobs, setting)
    save_measured(table, found, path)
    log_path.unlink()  # only once the table is on the disk
    return table, found


def sources_of(pairs: Pair | PairSource | Sequence[Pair | PairSource]) -> dict[str, PairSource]:
    """Return the sources by label.

    Raises:
        ValueError: there is none, one is not a pair, or a label occurs twice.
    """
    given = pairs if is_list(pairs) or isinstance(pairs, str) else [pairs]
    require_list("pairs", given, "pass at least one pair")
    sources: dict[str, PairSource] = {}
    for i, pair in enumerate(given):
        source = LoadedPair(pair, f"own {i}" if i else "own") if isinstance(pair, Pair) else pair
        if not isinstance(source, PairSource):
            raise ValueError(
                f"pairs[{i}] must be a pair, got {short(pair)}; "
                "pass a Pair, or a source of one such as StoredPair() or ShapePair(name)"
            )
        if source.label in sources:
            raise ValueError(f"pairs names {source.label!r} twice; name it once")
        sources[source.label] = source
    return sources


def jobs_of(labels: Sequence[str], grids: Sequence[Grid]) -> list[Job]:
    """Order the runs: pair by pair; within one, all cells of all grids once, then all again.

    Raises:
        ValueError: there is no grid.
    """
    require_list("grids", grids, "pass a Grid, or a list of them")
    repetitions: dict[Cell, int] = {}
    for i, grid in enumerate(grids):
        require_kind(f"grids[{i}]", grid, Grid, "pass a Grid, or a list of them")
    for label in labels:
        for grid in grids:
            for cell in grid.cells(label):
                repetitions[cell] = max(grid.repetitions, repetitions.get(cell, 0))
    models = list(dict.fromkeys(cell.models for cell in repetitions))
    jobs = [Job(cell, i) for cell, number in repetitions.items() for i in range(number)]
    return sorted(jobs, key=lambda job: (models.index(job.cell.models), job.repetition))


def _by_key(measurements: Iterable[Measurement]) -> dict[tuple[str, int], Measurement]:
    return {(cell_key(each["cell"]), each["repetition"]): each for each in measurements}


def _watched(outcomes: Outcomes, jobs: int, progress: bool) -> Outcomes:
    """Yield the outcomes; a bar shows how many of the jobs have ended."""
    with tqdm(total=jobs, desc="bench", unit="run", disable=not progress) as bar:
        for job, outcome in outcomes:
            bar.set_postfix_str(f"last {job.cell.strategy} at B = {job.cell.batch_size}")
            bar.update()
            yield job, outcome


def _table(
    measurements: Sequence[Measurement], jobs: Sequence[Job], setting: Setting
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Make the table of these jobs; the log may hold more."""
    by_key = _by_key(measurements)
    found = [by_key[job.key] for job in jobs if job.key in by_key]
    if all(measurement["failure"] for measurement in found):
        raise ValueError(
            f"no cell could be measured; the first failed because {found[0]['failure']}"
        )
    return make_table(found), conditions(found, recording=setting.recording, turns=setting.turns)


def run_here(setting: Setting, jobs: Sequence[Job]) -> Outcomes:
    """Run the jobs in this process, with the models of one pair in memory at a time.

    A cell that failed is not repeated.

    Raises:
        ValueError, OSError: models, prompts or references cannot be used; raised with the first
            run that needs them.
    """
    pair: Pair | None = None
    models = None
    works: dict[object, SharedWork] = {}
    warm: dict[Cell, float | str | None] = {}  # the memory that each took
    failed: set[Cell] = set()
    for group in _groups(jobs, setting.turns > 1):
        group = [job for job in group if job.cell not in failed]
        for job in group:
            cell = job.cell
            if pair is None or cell.models != models:
                # Release the previous pair before the next one is loaded.
                pair = None
                works = {}
                warm = {}
                pair = setting.sources[cell.pair].load(cell.device, cell.dtype)
                models = cell.models
            if cell.texts not in works:
                ids = setting.prompt_ids(cell, pair)
                reference = reference_of(pair, ids, cell.max_new_tokens)
                works[cell.texts] = SharedWork(pair, ids, reference)
            if cell not in warm:
                warm[cell] = warm_up(works[cell.texts], cell)
        if not group:
            continue
        work = works[group[0].cell.texts]
        # A GPU still works on one cell's round when the host turns to the next cell.
        turns = setting.turns if work.pair.device.type == "cpu" else 1
        cells = [job.cell for job in group]
        for place, outcome in take_turns(work, cells, turns, recording=setting.recording):
            cell = cells[place]
            if outcome["failure"]:
                failed.add(cell)
            yield group[place], with_memory(outcome, cell, warm[cell])


def _groups(jobs: Sequence[Job], turns: bool) -> list[list[Job]]:
    """Group the jobs that run together: each alone, or in turns all with the same work and B."""
    if not turns:
        return [[job] for job in jobs]
    groups: dict[object, list[Job]] = defaultdict(list)
    for job in jobs:
        cell = job.cell
        groups[cell.models, job.repetition, cell.texts, cell.batch_size].append(job)
    return list(groups.values())
