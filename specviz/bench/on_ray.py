"""Cells as tasks of Ray: on this machine or a cluster, each with GPUs or CPUs of its own.

A task is one cell with all its missing repetitions, which here follow one another. A worker that dies costs a retry, and no row: its rows
were not there yet.
Knows Ray by name alone: it is imported when a benchmark runs on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from specviz.bench.cells import Work, failed, measure, reference_of, stamp, warm_up
from specviz.bench.grid import Cell
from specviz.bench.log import Row
from specviz.bench.running import Job, Setting, ids_for
from specviz.generation.result import Result
from specviz.util.validate import require_int

RETRIES = 3  # of a task whose worker died


@dataclass(frozen=True)
class OnRay:
    """Runs jobs on Ray; pass it as `runner` to `run_bench`.

    Attributes:
        address: of a cluster, "auto" for the one that this machine belongs to; None: a Ray of its own on this machine.
        gpus: GPUs of a cell whose device is CUDA.
        cpus: CPUs of a cell; None: all of a node for a cell on the CPU, so that no other disturbs it, and one for a cell on GPUs.

    Raises:
        ImportError: Ray is not installed.
        ValueError: a number is none.
    """

    address: str | None = None
    gpus: int = 1
    cpus: int | None = None

    def __post_init__(self) -> None:
        require_int("gpus", self.gpus)
        if self.cpus is not None:
            require_int("cpus", self.cpus)
        if find_spec("ray") is None:
            raise ImportError(
                '--ray needs Ray, which is not installed; run: pip install "specviz[ray]"'
            )

    def __call__(self, setting: Setting, jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
        """Run the jobs; their rows come as their cells end.

        Raises:
            ValueError: a device is named that Ray would have to choose. With the rows comes what models, prompts and references raise,
                ConnectionError where there is no cluster at the address, and an error of Ray where all workers died over a reference.
        """
        for device in sorted({job.cell.device or "" for job in jobs}):
            if device.startswith("cuda:"):
                raise ValueError(
                    f"device={device!r} names one GPU, but Ray hands them out; pass device='cuda'"
                )
        return self._rows(setting, jobs)

    def _rows(self, setting: Setting, jobs: Sequence[Job]) -> Iterator[tuple[Job, Row]]:
        ray: Any = import_module("ray")
        started = not ray.is_initialized()
        if started:
            ray.init(
                address=self.address,
                log_to_driver=False,
                **({} if self.address else {"include_dashboard": False}),
            )
        try:
            yield from self._results(ray, setting, jobs)
        finally:
            if started:
                ray.shutdown()

    def _results(
        self, ray: Any, setting: Setting, jobs: Sequence[Job]
    ) -> Iterator[tuple[Job, Row]]:
        there, references, waiting = ray.put(setting), {}, {}
        for cell, same in _by_cell(jobs).items():
            place, texts = self._place(ray, cell), (*cell.models, *cell.texts)
            if texts not in references:
                references[texts] = (
                    ray.remote(_reference).options(**place).remote(there, cell, place)
                )
            task = (
                ray.remote(_measure)
                .options(**place)
                .remote(there, references[texts], cell, len(same), place)
            )
            waiting[task] = same, references[texts]
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            same, reference = waiting.pop(done)
            try:
                rows = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # as it would have been raised here
            except ray.exceptions.RayError as error:
                rows = [failed(error) | stamp(*ray.get(reference))]
            yield from zip(same, rows, strict=False)  # fewer rows where the cell failed

    def _place(self, ray: Any, cell: Cell) -> dict[str, Any]:
        """What a task asks Ray for."""
        gpu = cell.device == "cuda" or (
            cell.device is None and ray.cluster_resources().get("GPU", 0) > 0
        )
        if gpu:
            return {"num_gpus": self.gpus, "num_cpus": self.cpus or 1, "max_retries": RETRIES}
        smallest = min(
            int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"]
        )
        return {"num_cpus": self.cpus or smallest, "max_retries": RETRIES}


def _by_cell(jobs: Sequence[Job]) -> dict[Cell, list[Job]]:
    found: dict[Cell, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.cell, []).append(job)
    return found


def _reference(setting: Setting, cell: Cell, place: dict[str, Any]) -> tuple[Result, int]:
    """In a task: what the target writes for each prompt alone, and how many prompts there are."""
    pair = _loaded(setting, cell, place)
    ids = ids_for(setting, cell, pair)
    return reference_of(pair, ids, cell.max_new_tokens), len(ids)


def _measure(
    setting: Setting,
    reference: tuple[Result, int],
    cell: Cell,
    repetitions: int,
    place: dict[str, Any],
) -> list[Row]:
    """In a task: the rows of a cell's repetitions, up to the first that failed."""
    pair = _loaded(setting, cell, place)
    work, rows = Work(pair, ids_for(setting, cell, pair), reference[0]), []
    warm_up(work, cell)
    for _ in range(repetitions):
        rows.append(measure(work, cell, recording=setting.recording))
        if rows[-1]["failure"]:
            break
    return rows


def _loaded(setting: Setting, cell: Cell, place: dict[str, Any]) -> Any:
    if "num_gpus" not in place:
        torch.set_num_threads(place["num_cpus"])
    return setting.sources[cell.pair].load(
        "cuda" if "num_gpus" in place else cell.device, cell.dtype
    )
