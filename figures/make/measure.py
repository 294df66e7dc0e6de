"""How each table in figures/data is made: conditions, resuming, interleaving, saving.

A script has a function that measures, and calls `command` with the arguments of each of its tables.
`python figures/make/losses.py` then writes figures/data/losses.csv, and the conditions beside it.
"""

import argparse
import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import specviz as sv
from specviz.bench.interleave import TURNS, interleave
from specviz.bench.measuring import synchronize
from specviz.engine.kv.attention import attending
from specviz.generation.generate import generate_stepwise
from specviz.util.files import conditions, save_measured, write
from specviz.views.charts.plot import line_chart
from specviz.views.display import to_png

FIGURES = Path(__file__).parents[1]
DATA = FIGURES / "data"
RUNS = FIGURES.parent / "runs"  # what an interrupted script leaves
INTERVAL = (2.5, 97.5)  # percentiles of intervals
Table = pd.DataFrame
Measured = tuple[Table | Mapping[str, Table], Mapping[str, object]]


def command(
    measure: Callable[..., Measured],
    tables: Mapping[str, Mapping[str, Any]],
    small: Mapping[str, Any],
    folder: Path = DATA,
) -> None:
    """Measure the tables that are named on the command line, or all of them.

    `--small` measures with the arguments in `small` instead, and notes in the conditions of the
    table that the script has run and gives the same columns. The table stays as it is.

    Args:
        measure: returns a table and its conditions. Instead of one table it may return several:
            that called "fits" of the name "laws" becomes laws-fits.csv.
        tables: arguments of `measure`, by name.
        small: arguments that take less than a minute.
        folder: where the tables are.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("names", nargs="*", choices=[*tables, []], metavar="NAME")
    parser.add_argument("--small", action="store_true", help="only try that the script works")
    parser.add_argument("--out", type=Path, default=folder, help="folder of the tables")
    options = parser.parse_args()
    script = Path(sys.argv[0]).resolve().relative_to(FIGURES.parent).as_posix()
    for name in options.names or tables:
        found, about = measure(**{**tables[name], **(small if options.small else {})})
        several = {name: found}
        if isinstance(found, Mapping):
            several = {f"{name}-{part}": table for part, table in found.items()}
        for each, table in several.items():
            print(f"\n{each}\n{table.to_string(index=False, float_format='{:.4g}'.format)}")
            if options.small:
                note_small(options.out / f"{each}.csv", table, script)
            else:
                save_measured(table, {"script": script, **about}, options.out / f"{each}.csv")


def note_small(path: Path, table: Table, script: str) -> None:
    """Note beside a table that its script has run. Raise ValueError if a column is gone."""
    gone = [name for name in pd.read_csv(path, nrows=0) if name not in table]
    if gone:
        raise ValueError(f"{script} does not give {gone} of {path.name}")
    beside = path.with_suffix(".json")
    about = json.loads(beside.read_text(encoding="utf-8"))
    ran = {"created": now(), "torch": torch.__version__, "transformers": version("transformers")}
    about |= {"script": script, "last_small_run": ran}
    beside.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def measured_on(pair: sv.Pair, **settings: object) -> dict[str, object]:
    """Return the conditions of runs of a pair, and the settings. Decodes a token to warm up."""
    meta = sv.generate(pair, [[1, 2]], max_new_tokens=1, progress=False).meta
    return conditions(meta, threads=torch.get_num_threads(), **settings)


def without_model(device: torch.device | str = "cpu", **settings: object) -> dict[str, object]:
    """Return the conditions of a measurement that runs no model."""
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    versions = {each: version(each) for each in ("specviz", "torch", "numpy")}
    threads = torch.get_num_threads()
    return {"device": name, "versions": versions, "created": now(), "threads": threads, **settings}


class Kept:
    """What an interrupted run has measured so far, a line for each entry.

    The file is named after a hash of all conditions but the date, so that no entry is ever taken
    for one that was measured under others. `done` removes it.
    """

    def __init__(self, name: str, about: Mapping[str, object], folder: Path | None = None) -> None:
        same = {key: value for key, value in about.items() if key != "created"}
        digest = hashlib.sha256(json.dumps(same, sort_keys=True, default=str).encode())
        self.path = (folder or RUNS) / f"{name}-{digest.hexdigest()[:16]}.jsonl"
        self.path.parent.mkdir(exist_ok=True)
        self.entries: dict[str, Any] = {}
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            for line in lines:
                with suppress(ValueError):  # one that was cut
                    self.entries |= json.loads(line)

    def get(self, key: object, measure: Callable[[], Any]) -> Any:
        """Return what was measured under the key, or measure and keep it."""
        name = json.dumps(key, default=str)
        if name not in self.entries:
            self.entries[name] = json.loads(json.dumps(measure(), default=_plain))
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps({name: self.entries[name]}))
        return self.entries[name]

    def done(self) -> None:
        """Forget all: the table is complete."""
        self.path.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def interleaved(
    ways: Mapping[str, Callable[[], object]],
    repetitions: int,
    device: torch.device | str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each way in each repetition. All take turns, after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.disable()  # it would interrupt one way or another
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            synchronize(torch.device(device))
            begin = clock()
            way()
            synchronize(torch.device(device))
            if repetition:
                seconds[name].append(clock() - begin)
    gc.enable()
    return seconds


def generate_interleaved(
    pair: sv.Pair, runs: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, sv.Result]]:
    """Yield the place of each run and its Result, as it ends; on a CPU the runs take turns.

    runs: arguments of `generate_stepwise`, an int `max_new_tokens` among them.
    """
    jobs = [generate_stepwise(pair, **run) for run in runs]
    total = max(len(run["prompts"]) * run["max_new_tokens"] for run in runs)
    # A GPU still works on one run's round when the host turns to the next run.
    turns = TURNS if pair.device.type == "cpu" else 1
    return interleave(jobs, total, turns, lambda _: attending([pair.target, pair.draft]))


def repeated(
    pair: sv.Pair, runs: Sequence[Mapping[str, Any]], repetitions: int
) -> list[list[sv.Result]]:
    """Return the results of each run in each repetition. All take turns, after one to warm up.

    runs: arguments of `sv.generate`, `prompts` among them.
    """
    results: list[list[sv.Result]] = [[] for _ in runs]
    for repetition in range(repetitions + 1):
        for place, result in generate_interleaved(pair, runs):
            if repetition:
                results[place].append(result)
    return results


def speed(result: sv.Result) -> float:
    """Return a run's new tokens a second."""
    return float(result.summary["tokens_per_s"].item())


def draw_lines(name: str, series: Mapping[str, tuple[list[Any], list[Any]]], **chart: Any) -> None:
    """Write figures/NAME.png: a line for each of `series`, x and y. chart: of `line_chart`."""
    write(FIGURES / f"{name}.png", to_png(line_chart(series, theme="light", **chart), 2))
