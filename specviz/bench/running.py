"""`run_bench`: measure grids of cells, keep each run on disk, go on after an interruption."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from tqdm.auto import tqdm

from specviz.bench.cells import Cell, Grid
from specviz.bench.measuring import (
    Outcome,
    SharedWork,
    reference_of,
    take_turns,
    warm_up,
    with_memory,
)
from specviz.bench.sources import LoadedPair, PairSource, prompt_ids
from specviz.bench.table import Measurement, cell_key, conditions, make_table
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.util.files import as_write_error, make_folder, save_measured
from specviz.util.validate import require_int, shown_path

DISCARD = "discard it (fresh=True, --fresh)"


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


Outcomes = Iterator[tuple[Job, Outcome]]
Runner = Callable[[Setting, Sequence[Job]], Outcomes]
Table = tuple[pd.DataFrame, dict[str, object]]  # with its conditions


class Log:
    """The measurements of an unfinished benchmark: one line of JSON a run, so a kill costs one.

    The first line holds the conditions. A line counts once its end is written; half a line after
    the last end is dropped. Use it in a `with` block. No other process may write to the file
    meanwhile.
    """

    def __init__(self, path: Path, conditions: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Open the file at `path`, or create it with its folder.

        Args:
            conditions: what all measurements share, as plain values.
            fresh: discard what the file holds.

        Raises:
            ValueError: the file was written under other conditions, or is not a log.
            WriteError: it cannot be written.
        """
        self.path = path
        make_folder(path.parent)
        lines = []
        if path.is_file() and not fresh:
            lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        now = json.loads(json.dumps(conditions))  # as they are read back: tuples become lists
        parsed = []
        for number, line in enumerate(whole, 1):
            try:
                parsed.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                raise ValueError(
                    f"line {number} of {path} must be a JSON object of a benchmark; "
                    f"delete the file, or {DISCARD}"
                ) from None
        before, *self.measurements = parsed or [now]
        for name in [*now, *before]:
            if before.get(name) != now.get(name):
                raise ValueError(
                    f"{path} was begun with {name}={json.dumps(before.get(name)):.80}, and now it "
                    f"is {json.dumps(now.get(name)):.80}; go on as it was begun, or {DISCARD}"
                )
        with as_write_error(path):
            # Unbuffered: what a kill leaves is what was written, line by line.
            self._file = path.open("r+b" if whole else "wb", buffering=0)
            self._file.truncate(sum(map(len, whole)))
            self._file.seek(0, os.SEEK_END)
        if not whole:
            self._write(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, measurement: Measurement) -> None:
        """Write a measurement; it is on the disk when this returns.

        Raises WriteError: the measurements before it are kept.
        """
        self._write(measurement)
        self.measurements.append(measurement)

    def _write(self, line: Mapping[str, Any]) -> None:
        content = json.dumps(line).encode() + b"\n"
        remedy = "make room; measurements so far are kept there, and the same command goes on"
        with as_write_error(self.path, remedy):
            while content:  # a disk that becomes full takes a part
                content = content[self._file.write(content) :]
            os.fsync(self._file.fileno())


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
) -> Table:
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
        fresh: discard an interrupted run, and replace a finished table.
        runner: where the cells run; None: in this process. See `OnRay`.

    Returns:
        (table, conditions); see `make_table`.

    Raises:
        ValueError: an argument cannot be used, `path` holds a finished table, the interrupted run
            was begun under other conditions, or all cells failed.
    """
    sources: dict[str, PairSource] = {}
    for i, pair in enumerate(pairs if isinstance(pairs, Sequence) else [pairs]):
        source = LoadedPair(pair, f"own {i}" if i else "own") if isinstance(pair, Pair) else pair
        if source.label in sources:
            raise ValueError(f"pairs names {source.label!r} twice; name it once")
        sources[source.label] = source
    if limit is not None:
        require_int("limit", limit)
    require_int("turns", turns)
    if runner is not None and turns > 1:
        raise ValueError(
            f"turns={turns}, but a runner's cells run on their own; leave turns out, or the runner"
        )
    setting = Setting(sources, prompts, limit, recording, turns)
    jobs = jobs_of(list(sources), [grids] if isinstance(grids, Grid) else grids)
    if runner is None:  # the places where a runner's cells run are not known here
        for name, device, dtype in dict.fromkeys(job.cell.models for job in jobs):
            sources[name].check(device, dtype)

    if path is None:
        return _table_of(jobs, setting, runner or run_here, progress)
    path = Path(path)
    log_path = path.with_suffix(".jsonl.partial")
    if path.exists() and not log_path.exists() and not fresh:
        raise ValueError(
            f"{shown_path(path)} holds a finished benchmark; write to another place (path=, --out),"
            " or replace it (fresh=True, --fresh)"
        )
    with Log(log_path, setting.conditions(), fresh=fresh) as log:
        run = runner or run_here
        table, about = _table_of(jobs, setting, run, progress, log.measurements, log.add)
    save_measured(table, about, path)
    log_path.unlink()  # only once the table is on the disk
    return table, about


def _table_of(
    jobs: Sequence[Job],
    setting: Setting,
    run: Runner,
    progress: bool,
    measurements: Sequence[Measurement] = (),
    add: Callable[[Measurement], None] = lambda _: None,
) -> Table:
    """Run the jobs that `measurements` lack, which may hold others too, and make the table."""
    done = {(cell_key(each["cell"]), each["repetition"]): each for each in measurements}
    # What failed stays failed.
    failed = {key for (key, _), each in done.items() if each["failure"]}
    missing = [job for job in jobs if job.key not in done and job.key[0] not in failed]
    with tqdm(total=len(missing), desc="bench", unit="run", disable=not progress) as bar:
        for job, outcome in run(setting, missing):
            bar.set_postfix_str(f"last {job.cell.strategy} at B = {job.cell.batch_size}")
            bar.update()
            done[job.key] = {"cell": job.cell.key, "repetition": job.repetition, **outcome}
            add(done[job.key])
    found = [done[job.key] for job in jobs if job.key in done]
    if all(measurement["failure"] for measurement in found):
        raise ValueError(
            f"no cell could be measured; the first failed because {found[0]['failure']}"
        )
    return make_table(found), conditions(found, recording=setting.recording, turns=setting.turns)


def jobs_of(labels: Sequence[str], grids: Sequence[Grid]) -> list[Job]:
    """Order the runs: pair by pair; within one, all cells of all grids once, then all again."""
    repetitions: dict[Cell, int] = {}
    for label in labels:
        for grid in grids:
            for cell in grid.cells(label):
                repetitions[cell] = max(grid.repetitions, repetitions.get(cell, 0))
    models = list(dict.fromkeys(cell.models for cell in repetitions))
    jobs = [Job(cell, i) for cell, number in repetitions.items() for i in range(number)]
    return sorted(jobs, key=lambda job: (models.index(job.cell.models), job.repetition))


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
    # Jobs run alone, or in turns all with the same work and B.
    groups: dict[object, list[Job]] = defaultdict(list)
    for job in jobs:
        cell = job.cell
        together = (cell.models, job.repetition, cell.texts, cell.batch_size)
        groups[together if setting.turns > 1 else job].append(job)
    for group in groups.values():
        group = [job for job in group if job.cell not in failed]
        for cell in (job.cell for job in group):
            if pair is None or cell.models != models:
                # Release the previous pair before the next one is loaded.
                pair = None
                works = {}
                warm = {}
                pair = setting.sources[cell.pair].load(cell.device, cell.dtype)
                models = cell.models
            if cell.texts not in works:
                ids = setting.prompt_ids(cell, pair)
                works[cell.texts] = SharedWork(
                    pair, ids, reference_of(pair, ids, cell.max_new_tokens)
                )
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
