"""`run_bench`: measure grids of cells, keep each run on disk, go on after an interruption."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import pandas as pd
import torch

from specviz.bench.cells import memory_of, take_turns, warm_up
from specviz.bench.grid import Cell, Grid
from specviz.bench.jobs import Job, Runner, Setting, jobs_of, sources_of
from specviz.bench.log import Log, Measurement, cell_key, key_of
from specviz.bench.outcome import Outcome, SharedWork, reference_of
from specviz.bench.progress import show_progress
from specviz.bench.sources import PairSource
from specviz.bench.table import conditions, make_table
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.util.files import save_measured
from specviz.util.validate import (
    is_list,
    require_bool,
    require_function,
    require_int,
    require_list,
    require_path,
)

MAX_PROMPTS = 1_000_000
MAX_TURNS = 1_000_000


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
    _check_work(prompts, limit, runner, recording=recording, fresh=fresh, progress=progress)
    setting = Setting(
        sources, prompts, limit, recording, require_int("turns", turns, maximum=MAX_TURNS)
    )
    if setting.turns > 1 and runner is not None:
        raise ValueError(
            f"turns={turns}, but a runner's cells run on their own; leave turns out, or the runner"
        )
    run = runner or run_here
    jobs = jobs_of(list(sources), [grids] if isinstance(grids, Grid) else grids)
    if path is None:
        outcomes = show_progress(jobs, run(setting, jobs), progress)
        return _table([job.measurement(outcome) for job, outcome in outcomes], jobs, setting)
    path = require_path("path", path)
    if runner is None:
        _check_sources(setting, jobs)  # before a log is begun
    log_path = path.with_suffix(".jsonl.partial")
    with Log(log_path, _conditions_to_resume(setting), fresh=fresh) as log:
        missing = _missing(jobs, log.measurements)
        for job, outcome in show_progress(missing, run(setting, missing), progress):
            log.add(job.measurement(outcome))
    table, found = _table(log.measurements, jobs, setting)
    save_measured(table, found, path)
    log_path.unlink()  # only once the table is on the disk
    return table, found


def _check_work(prompts: object, limit: object, runner: object, **flags: object) -> None:
    for name, flag in flags.items():
        require_bool(name, flag)
    if not is_list(prompts) or prompts:  # pairs of shapes draw their own
        require_list("prompts", prompts)
    if runner is not None:
        require_function("runner", runner, "pass OnRay(), or None for this process")
    if limit is not None:
        require_int("limit", limit, maximum=MAX_PROMPTS)


def _missing(jobs: Sequence[Job], measurements: Sequence[Measurement]) -> list[Job]:
    """Return the jobs that were not measured. What failed stays failed."""
    done = {key_of(measurement) for measurement in measurements}
    failed = {cell_key(each["cell"]) for each in measurements if each["failure"]}
    return [job for job in jobs if job.key not in done and job.key[0] not in failed]


def _table(
    measurements: Sequence[Measurement], jobs: Sequence[Job], setting: Setting
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Make the table of these jobs; the log may hold more."""
    by_key = {key_of(measurement): measurement for measurement in measurements}
    found = [by_key[job.key] for job in jobs if job.key in by_key]
    if all(measurement["failure"] for measurement in found):
        raise ValueError(
            f"no cell could be measured; the first failed because {found[0]['failure']}"
        )
    return make_table(found), conditions(found, recording=setting.recording, turns=setting.turns)


def _conditions_to_resume(setting: Setting) -> dict[str, object]:
    """Return the conditions that all runs in one log share."""
    prompts = json.dumps([list(prompt) for prompt in setting.prompts])
    return {
        "prompts": hashlib.sha256(prompts.encode()).hexdigest()[:16],
        "limit": setting.limit,
        "recording": setting.recording,
        "turns": setting.turns,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("specviz", "torch", "transformers")},
    }


def run_here(setting: Setting, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
    """Run the jobs in this process, with the models of one pair in memory at a time.

    A cell that failed is not repeated.

    Raises:
        ValueError: a device is not there. Other errors of models, prompts and references are
            raised with the first run that needs them.
    """
    _check_sources(setting, jobs)
    return _outcomes(setting, jobs)


def _check_sources(setting: Setting, jobs: Sequence[Job]) -> None:
    for label, device, dtype in dict.fromkeys(job.cell.models for job in jobs):
        setting.sources[label].check(device, dtype)


def _outcomes(setting: Setting, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
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
            yield group[place], outcome | {"memory_mb": memory_of(cell, warm[cell], outcome)}


def _groups(jobs: Sequence[Job], turns: bool) -> list[list[Job]]:
    """Group the jobs that run together: each alone, or in turns all with the same work and B."""
    if not turns:
        return [[job] for job in jobs]
    groups: dict[object, list[Job]] = defaultdict(list)
    for job in jobs:
        cell = job.cell
        groups[cell.models, job.repetition, cell.texts, cell.batch_size].append(job)
    return list(groups.values())
