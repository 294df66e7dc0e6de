"""The floor of a piece of work: what it needs, and the least time that takes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from specviz.costs.shapes import Numbers

BOUNDS = ("bandwidth", "compute", "launch")
_COLUMNS = {
    "megabytes": ("bytes", 1e-6),
    "gflops": ("flops", 1e-9),
    "launches": ("launches", 1.0),
    "bandwidth_ms": ("bandwidth_s", 1e3),
    "compute_ms": ("compute_s", 1e3),
    "launch_ms": ("launch_s", 1e3),
    "floor_ms": ("seconds", 1e3),
}


@dataclass(frozen=True)
class Floor:
    """What a piece of work needs, and the least seconds it takes.

    Each attribute is a number, or an array with an entry a round.

    Attributes:
        bytes, flops, launches: memory traffic, floating-point operations, kernels.
        bandwidth_s, compute_s, launch_s: what each of them alone would take.
        seconds: the floor. The floor of several forwards is the sum of their floors, so it may
            exceed the largest of the three.
    """

    bytes: Numbers = 0.0
    flops: Numbers = 0.0
    launches: Numbers = 0.0
    bandwidth_s: Numbers = 0.0
    compute_s: Numbers = 0.0
    launch_s: Numbers = 0.0
    seconds: Numbers = 0.0

    def __add__(self, other: "Floor") -> "Floor":
        return Floor(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, count: Numbers) -> "Floor":
        """Return the floor of the same work done `count` times."""
        return Floor(*(getattr(self, f.name) * count for f in fields(self)))

    @property
    def bound(self) -> str:
        """What takes longest over all rounds: one of BOUNDS, or "nothing" without work."""
        seconds = [self.total(f"{name}_s") for name in BOUNDS]
        return BOUNDS[int(np.argmax(seconds))] if any(seconds) else "nothing"

    def total(self, name: str) -> float:
        """Return the sum of an attribute over all rounds."""
        return float(np.sum(getattr(self, name)))


def floors(phases: Mapping[str, Floor]) -> pd.DataFrame:
    """Return a table with one entry a phase, summed over all rounds.

    Columns: phase, megabytes, gflops, launches, bandwidth_ms, compute_ms, launch_ms, floor_ms,
    bound.
    """
    entries = []
    for phase, floor in phases.items():
        entry: dict[str, object] = {"phase": phase}
        for column, (attribute, unit) in _COLUMNS.items():
            entry[column] = floor.total(attribute) * unit
        entries.append(entry | {"bound": floor.bound})
    return pd.DataFrame(entries)
