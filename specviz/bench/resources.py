"""What a cell uses besides time: memory, devices, requests in flight, and its drafter's training.

Two methods are compared at equal work only if these are equal, too; see `check`.
"""

from typing import Any, Self

import torch

from specviz.bench.baselines import Baseline
from specviz.bench.grid import Cell
from specviz.engine.models.pair import Pair
from specviz.engine.peak import PeakMeter
from specviz.generation.result import Result

MB = 1e6


class MemoryMeter:
    """Measures the most memory that a cell holds at once inside its `with` block.

    On a CPU every operation is watched, which takes time, so nothing is timed inside. On CUDA the
    allocator counts.

    Attributes:
        peak_mb: its tensors and the weights of its models, in millions of bytes; None where it
            cannot be measured: for decoders without torch, and on other devices.
    """

    def __init__(self, pair: Pair, cell: Cell) -> None:
        self.peak_mb: float | None = None
        how = cell.method.how
        drafting = drafting_modules(pair, cell)
        self._weights = PeakMeter([pair.target, *drafting]).weight_bytes
        self._gpus: list[int] = []
        self._watch: PeakMeter | None = None
        if isinstance(how, Baseline) and not how.on_torch:
            return
        self._gpus = sorted(device.index or 0 for device in places(pair) if device.type == "cuda")
        if pair.device.type == "cpu":
            # The weights of a draft that the method does not use are not its memory.
            self._watch = PeakMeter([pair.target, pair.draft, *drafting])

    def __enter__(self) -> Self:
        self._before = 0
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
            self._before += torch.cuda.memory_allocated(gpu)
        if self._watch is not None:
            self._watch.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._watch is not None:
            self._watch.__exit__(kind, error, trace)
            self.peak_mb = (self._watch.peak_bytes + self._weights) / MB
        elif self._gpus:
            most = sum(torch.cuda.max_memory_allocated(gpu) for gpu in self._gpus)
            self.peak_mb = (most - self._before + self._weights) / MB


def use_of(pair: Pair, cell: Cell, result: Result) -> dict[str, float | None]:
    """Return verified_a_round, in_flight, devices and training_s of a run.

    verified_a_round: drafts that the target verified, a row and round; None for a baseline that
    drafts, which cannot be observed inside. in_flight: requests that were begun and had not ended,
    at most. devices: on which the weights of its models lie. training_s: of the weights that draft;
    0 without any, None where their files do not say.
    """
    how = cell.method.how
    verified: float | None = None
    if not isinstance(how, Baseline):
        active = result.rows["gained"] > 0
        verified = float(result.rows["verified"][active].mean())
    elif not how.drafts:
        verified = 0.0
    batch_size = int(result.meta["batch_size"])  # the run's own: it may have been lowered
    drafting = drafting_modules(pair, cell)
    trained: list[Any] = [getattr(module, "training_s", None) for module in drafting]
    return {
        "verified_a_round": verified,
        "in_flight": float(how.capacity(batch_size, len(result.tokens))),
        "devices": float(len(places(pair, drafting))),
        "training_s": None if None in trained else sum(trained, 0.0),
    }


def drafting_modules(pair: Pair, cell: Cell) -> list[Any]:
    """Return the models and heads that draft in this cell; [] where none does."""
    if cell.proposer is not None:
        return list(cell.proposer.models(pair).values())
    return [pair.draft] if cell.method.how.drafts else []


def places(pair: Pair, drafting: list[Any] | None = None) -> set[torch.device]:
    """Return the devices on which the weights of the target and of `drafting` lie."""
    modules = [pair.target, *(drafting or [])]
    return {parameter.device for module in modules for parameter in module.parameters()}
