"""How often one head of `specviz study heads` is right and another is not. Runs no model.

Both are measured at the same positions of the same prompts. So the interval of their difference is
that of prompts drawn for both, which is much narrower than that of either head.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from specviz.record.schema import Array
from specviz.zoo.heads.study_tables import over_prompts

# A head, and the one that it is compared with.
PAIRS = (
    ("clover-block", "clover-neither"),
    ("clover-gate", "clover-neither"),
    ("clover", "clover-neither"),
    ("clover", "clover-block"),
    ("clover", "clover-gate"),
    ("clover", "clover-silu"),
    ("clover-silu", "clover-block"),
    ("eagle3", "eagle3-alone"),
    ("eagle3", "eagle1"),
)
SHARES = {
    "top1": ("top1", "positions"),
    "top5": ("top5", "positions"),
    "conditional": ("accepted", "reached"),
}


def gain_table(found: Sequence[Mapping[str, Any]], samples: int, seed: int) -> pd.DataFrame:
    """Return one entry for each of PAIRS that was trained, and each step of both.

    Columns: head; over, the other head; step, from 1; and of the shares top1, top5 and conditional
    of `step_table` the difference in percentage points, with its interval over prompts (top1,
    top1_low, top1_high, ...).
    """
    of_budget = {}
    for each in found:
        if each["columns"]["share"] == 1:
            counts = {name: np.array(values) for name, values in each["hits"].items()}
            of_budget[each["columns"]["head"]] = counts
    entries: list[dict[str, object]] = []
    for head, over in PAIRS:
        if head in of_budget and over in of_budget:
            pair = (of_budget[head], of_budget[over])
            for entry in _differences(*pair, samples, seed):
                entries.append({"head": head, "over": over} | entry)
    return pd.DataFrame(entries)


def _differences(
    ours: Mapping[str, Array], others: Mapping[str, Array], samples: int, seed: int
) -> Iterator[dict[str, object]]:
    steps = min(ours["positions"].shape[1], others["positions"].shape[1])
    for step in range(steps):
        entry: dict[str, object] = {"step": step + 1}
        for name, (above, below) in SHARES.items():
            columns = [ours[above], ours[below], others[above], others[below]]
            of_step = [counts[:, step] for counts in columns]
            entry |= _difference(name, of_step, samples, seed)
        yield entry


def _difference(name: str, columns: Sequence[Array], samples: int, seed: int) -> dict[str, float]:
    """Return a / b - c / d of sums over prompts, given a, b, c and d, in points.

    NaN stands for the interval where fewer than two prompts count for both.
    """
    counted = (columns[1] > 0) & (columns[3] > 0)
    kept = [column[counted].astype(float) for column in columns]
    return over_prompts(name, kept, _points, samples, seed)


def _points(a: Array, b: Array, c: Array, d: Array, axis: int = -1) -> Array:
    points: Array = 100 * (a.sum(axis) / b.sum(axis) - c.sum(axis) / d.sum(axis))
    return points
