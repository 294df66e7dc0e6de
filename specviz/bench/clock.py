"""Time that does not count: the turns of other cells, and what a synthetic drafter needs."""

import time
from dataclasses import dataclass, field, fields
from typing import ClassVar

import torch

from specviz.engine.drafters.base import Task
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.state import State


class Clock:
    """Sums the seconds inside its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(frozen=True)
class ClockedDrafter(SyntheticDrafter):
    """A synthetic drafter that sums how long the target decodes ahead for it.

    No real drafter knows the target's tokens beforehand, so that time is not part of the method.
    """

    clock: Clock = field(default_factory=Clock, compare=False, repr=False)

    capturable: ClassVar[bool] = SyntheticDrafter.capturable

    @classmethod
    def of(cls, drafter: SyntheticDrafter, clock: Clock) -> "ClockedDrafter":
        """Return the same drafter with a clock."""
        options = {item.name: getattr(drafter, item.name) for item in fields(drafter)}
        return cls(**options, clock=clock)

    def prepare(self, task: Task, state: State) -> torch.Tensor:
        synchronize(task.pair.device)
        with self.clock:
            prepared = super().prepare(task, state)
            synchronize(task.pair.device)
        return prepared


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
