"""Time that does not count: the turns of other cells, and what a synthetic drafter needs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np
import torch

from specviz.engine.drafters.base import Task
from specviz.engine.drafters.synthetic import SyntheticDrafter
from specviz.engine.state import State

Texts = Mapping[tuple[int, ...], Sequence[int]]


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
    It is also most of the time that a benchmark of a large target takes, so the target decodes
    ahead only where its texts are not known.

    `known` has what the target writes after a prompt, decoding greedily.
    """

    clock: Clock = field(default_factory=Clock, compare=False, repr=False)
    known: Texts = field(default_factory=dict, compare=False, repr=False)

    capturable: ClassVar[bool] = SyntheticDrafter.capturable

    @classmethod
    def of(cls, drafter: SyntheticDrafter, clock: Clock, known: Texts) -> "ClockedDrafter":
        """Return the same drafter with a clock and with the texts that are known."""
        options = {item.name: getattr(drafter, item.name) for item in fields(drafter)}
        return cls(**options, clock=clock, known=known)

    def prepare(self, task: Task, state: State) -> torch.Tensor:
        synchronize(task.pair.device)
        with self.clock:
            prepared = super().prepare(task, state)
            synchronize(task.pair.device)
        return prepared

    def _right_tokens(self, task: Task, state: State) -> np.ndarray:
        """Return the next K tokens of the known texts, or ask the target for those of all rows.

        It is asked, too, where rounding took a row off its known text, and at the end of a text.
        """
        k = state.num_draft_tokens
        following = []
        for row in state.batch.rows:
            text = list(self.known.get(row.request.prompt, ()))
            written = len(row.output)
            is_known = text[:written] == row.output and len(text) >= written + k
            if task.sampling is not None or not is_known:
                return super()._right_tokens(task, state)
            following.append(text[written : written + k])
        return np.array(following)


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
