"""Cells as tasks of Ray: on this machine or a cluster, each with GPUs or CPUs of its own.

A task is one cell with all its missing repetitions, which follow one another. A worker that dies
costs a retry and no measurement, since the task had returned none yet. Ray is imported only when a
benchmark runs on it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from specviz.bench.cells import Cell
from specviz.bench.measuring import Outcome, SharedWork, failed, measure, stamp
from specviz.bench.running import Job, Outcomes, Setting
from specviz.engine.models.pair import Pair
from specviz.generation.result import Result
from specviz.util.validate import require_int

RETRIES = 3  # of a task whose worker died


@dataclass(frozen=True)
class OnRay:
    """Runs jobs on Ray; pass it as `runner` to `run_bench`.

    Attributes:
        address: of a cluster, "auto" for the one that this machine belongs to; None: start Ray on
            this machine.
        gpus: GPUs of a cell whose device is CUDA.
        cpus: CPUs of a cell; None: all of a node for a cell on the CPU, so that no other cell
            disturbs it, and one for a cell on GPUs.

    Raises ImportError if Ray is not installed, ValueError for a number below 1.
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

    def __call__(self, setting: Setting, jobs: Sequence[Job]) -> Outcomes:
        """Run the jobs; yield their outcomes as their cells end.

        Raises:
            Exception: what models, prompts and references raise ("cuda" is the one GPU that a task
                has), ConnectionError without a cluster at the address, and an error of Ray if all
                workers died over a reference.
        """
        by_cell: dict[Cell, list[Job]] = defaultdict(list)
        for job in jobs:
            by_cell[job[0]].append(job)
        ray: Any = import_module("ray")
        started = not ray.is_initialized()
        if started:
            options = {} if self.address else {"include_dashboard": False}
            ray.init(address=self.address, log_to_driver=False, **options)
        try:
            shared = ray.put(setting)
            references: dict[object, Any] = {}
            waiting = {}
            for cell, same in by_cell.items():
                place = self._place(ray, cell)
                texts = (*cell.models, *cell.texts)
                if texts not in references:
                    task = ray.remote(_reference).options(**place)
                    references[texts] = task.remote(shared, cell, place)
                task = ray.remote(_measure).options(**place)
                result = task.remote(shared, references[texts], cell, len(same), place)
                waiting[result] = same, references[texts]
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                same, reference = waiting.pop(done)
                try:
                    outcomes = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # as it would have been raised here
                except ray.exceptions.RayError as error:
                    outcomes = [failed(error) | stamp(ray.get(reference))]
                # Where the cell failed there are fewer outcomes than jobs.
                yield from zip(same, outcomes, strict=False)
        finally:
            if started:
                ray.shutdown()

    def _place(self, ray: Any, cell: Cell) -> dict[str, Any]:
        """Return the resources that a task requests from Ray."""
        any_gpu = ray.cluster_resources().get("GPU", 0) > 0
        if str(cell.device).startswith("cuda") or (cell.device is None and any_gpu):
            return {"num_gpus": self.gpus, "num_cpus": self.cpus or 1, "max_retries": RETRIES}
        nodes = [node for node in ray.nodes() if node["Alive"]]
        smallest = min(int(node["Resources"].get("CPU", 1)) for node in nodes)
        return {"num_cpus": self.cpus or smallest, "max_retries": RETRIES}


def _load(setting: Setting, cell: Cell, place: dict[str, Any]) -> Pair:
    """Load the pair in a task, which may use as many threads as it has CPUs."""
    if "num_gpus" not in place:
        torch.set_num_threads(place["num_cpus"])
    return setting.sources[cell.pair].load(cell.device, cell.dtype)


def _reference(setting: Setting, cell: Cell, place: dict[str, Any]) -> Result:
    return setting.reference(_load(setting, cell, place), cell)


def _measure(
    setting: Setting, reference: Result, cell: Cell, repetitions: int, place: dict[str, Any]
) -> list[Outcome]:
    """Measure the repetitions of a cell in a task, up to the first that failed."""
    work = SharedWork(_load(setting, cell, place), reference)
    outcomes: list[Outcome] = []
    while len(outcomes) < repetitions and not (outcomes and outcomes[-1]["failure"]):
        outcomes.append(measure(work, cell, recording=setting.recording))
    return outcomes
