"""`run_bench`: measure grids of cells, keep each run on disk, go on after an interruption."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from specviz.bench.cells import Cell, Grid
from specviz.bench.measuring import Outcome, SharedWork, reference_of, take_turns
from specviz.bench.sources import LoadedPair, PairSource, prompt_ids
from specviz.bench.table import Measurement, cell_key, conditions, make_table
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.generation.result import Result
from specviz.util.files import as_write_error, check_writable, make_folder, save_measured
from specviz.util.validate import require_int, shown_path

DISCARD = "discard it (fresh=True, --fresh)"


@dataclass(frozen=True)
class Setting:
    """What holds for all cells.

    Attributes:
        sources: of pairs, by their labels.
        prompts, limit, recording, turns: as in `run_bench`.
    """

    sources: dict[str, PairSource]
    prompts: Sequence[Prompt]
    limit: int | None = None
    recording: bool = False
    turns: int = 1

    def reference(self, pair: Pair, cell: Cell) -> Result:
        """Return what the target writes for each of the cell's prompts alone."""
        source = self.sources[cell.pair]
        ids = prompt_ids(source, pair, self.prompts, self.limit, cell.prompt_tokens)
        return reference_of(pair, ids, cell.max_new_tokens)

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


Job = tuple[Cell, int]  # one run of a cell, by its repetition from 0
Outcomes = Iterator[tuple[Job, Outcome]]
Runner = Callable[[Setting, Sequence[Job]], Outcomes]


class Log:
    """The measurements of an unfinished benchmark: one line of JSON a run, so a kill costs one.

    The first line holds the conditions. A line counts once its end is written; half a line after
    the last end is dropped. No other process may write to the file meanwhile. It is made with the
    first measurement.
    """

    def __init__(
        self, path: Path | None, conditions: Mapping[str, Any], *, fresh: bool = False
    ) -> None:
        """Read the file at `path`, if there is one.

        Args:
            path: None: keep the measurements in memory alone.
            conditions: what all measurements share, as plain values.
            fresh: discard what the file holds.

        Raises:
            ValueError: the file was written under other conditions, or is not a log.
            WriteError: it cannot be written.
        """
        self.path = path
        now = json.loads(json.dumps(conditions))  # as they are read back: tuples become lists
        lines: list[bytes] = []
        if path is not None:
            check_writable(path)
            if path.is_file() and not fresh:
                lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._size = sum(map(len, whole))
        parsed = []
        for number, line in enumerate(whole, 1):
            try:
                parsed.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                raise ValueError(
                    f"line {number} of {path} must be a JSON object of a benchmark; "
                    f"delete the file, or {DISCARD}"
                ) from None
        self._conditions, *self.measurements = parsed or [now]
        for name in [*now, *self._conditions]:
            before = self._conditions.get(name)
            if before != now.get(name):
                raise ValueError(
                    f"{path} was begun with {name}={json.dumps(before):.80}, and now it is "
                    f"{json.dumps(now.get(name)):.80}; go on as it was begun, or {DISCARD}"
                )

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement; it is on the disk when this returns.

        Raises WriteError: the measurements before it are kept.
        """
        self.measurements.append(measurement)
        if self.path is None:
            return
        lines = [measurement] if self._size else [self._conditions, measurement]
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        remedy = "make room; measurements so far are kept there, and the same command goes on"
        make_folder(self.path.parent)
        with (
            as_write_error(self.path, remedy),
            self.path.open("r+b" if self._size else "wb") as file,
        ):
            file.truncate(self._size)
            file.seek(self._size)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(content)


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
        fresh: discard an interrupted run, and replace a finished table.
        runner: where the cells run; None: in this process. See `OnRay`.

    Returns:
        (table, conditions); see `make_table`.

    Raises:
        ValueError: an argument cannot be used, `path` holds a finished table, the interrupted run
            was begun under other conditions, or all cells failed.
        OSError: a model cannot be loaded. Errors of loading are raised with the first run that
            needs the pair.
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
    path = None if path is None else Path(path)
    log_path = None if path is None else path.with_suffix(".jsonl.partial")
    if path and log_path and path.exists() and not log_path.exists() and not fresh:
        raise ValueError(
            f"{shown_path(path)} holds a finished benchmark; write to another place (path=, --out),"
            " or replace it (fresh=True, --fresh)"
        )
    log = Log(log_path, setting.conditions(), fresh=fresh)

    done = {(cell_key(each["cell"]), each["repetition"]): each for each in log.measurements}
    # What failed stays failed.
    failed = {key for (key, _), each in done.items() if each["failure"]}
    keys = {job: (cell_key(job[0].key), job[1]) for job in jobs}
    missing = [job for job in jobs if keys[job] not in done and keys[job][0] not in failed]
    with tqdm(total=len(missing), desc="bench", unit="run", disable=not progress) as bar:
        for job, outcome in (runner or run_here)(setting, missing):
            cell, repetition = job
            bar.set_postfix_str(f"last {cell.strategy} at B = {cell.batch_size}")
            bar.update()
            done[keys[job]] = {"cell": cell.key, "repetition": repetition, **outcome}
            log.add(done[keys[job]])
    found = [done[keys[job]] for job in jobs if keys[job] in done]
    if all(measurement["failure"] for measurement in found):
        raise ValueError(
            f"no cell could be measured; the first failed because {found[0]['failure']}"
        )
    table = make_table(found)
    about = conditions(found, recording=recording, turns=turns)
    if path and log_path:
        save_measured(table, about, path)
        log_path.unlink(missing_ok=True)  # only once the table is on the disk
    return table, about


def jobs_of(labels: Sequence[str], grids: Sequence[Grid]) -> list[Job]:
    """Order the runs: pair by pair; within one, all cells of all grids once, then all again."""
    repetitions: dict[Cell, int] = {}
    for label in labels:
        for grid in grids:
            for cell in grid.cells(label):
                repetitions[cell] = max(grid.repetitions, repetitions.get(cell, 0))
    models = list(dict.fromkeys(cell.models for cell in repetitions))
    jobs = [(cell, i) for cell, number in repetitions.items() for i in range(number)]
    return sorted(jobs, key=lambda job: (models.index(job[0].models), job[1]))


def run_here(setting: Setting, jobs: Sequence[Job]) -> Outcomes:
    """Run the jobs in this process, with the models of one pair in memory at a time."""
    for (label, device, dtype), with_pair in groupby(jobs, lambda job: job[0].models):
        pair = setting.sources[label].load(device, dtype)
        yield from _run_with(pair, setting, list(with_pair))
        del pair  # before the next one is loaded


def _run_with(pair: Pair, setting: Setting, jobs: Sequence[Job]) -> Outcomes:
    # A GPU still works on one cell's round when the host turns to the next cell.
    turns = setting.turns if pair.device.type == "cpu" else 1
    # Jobs run alone, or in turns all with the same work and B.
    groups: dict[object, list[Job]] = defaultdict(list)
    for cell, repetition in jobs:
        together = (repetition, cell.texts, cell.batch_size)
        groups[together if turns > 1 else (cell, repetition)].append((cell, repetition))
    works: dict[object, SharedWork] = {}
    failed: set[Cell] = set()
    for group in groups.values():
        group = [job for job in group if job[0] not in failed]  # what failed is not repeated
        if not group:
            continue
        cells = [cell for cell, _ in group]
        if cells[0].texts not in works:
            works[cells[0].texts] = SharedWork(pair, setting.reference(pair, cells[0]))
        work = works[cells[0].texts]
        for place, outcome in take_turns(work, cells, turns, recording=setting.recording):
            if outcome["failure"]:
                failed.add(cells[place])
            yield group[place], outcome
