"""How far rules that look right take a text from the target's: `specviz study biases`.

Every distance is exact: all that a small round can draw and decide is summed, for random
distributions p and q. See `exact_trees` and `exact_selection`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from specviz.studies import exact_selection, exact_trees
from specviz.util.validate import require_bool, require_int

MAX_CASES = 10_000
ROUNDING = 1e-12  # what sums of some thousand float64 numbers may be off
# What is judged, and the rule: the distance of a case, by its seed.
RULES: dict[tuple[str, str], Callable[[int], float]] = {
    ("children drawn without replacement", "by q renormalised"): partial(
        exact_trees.judged, exact_trees.drawn_trees, renormalise=True
    ),
    ("children drawn without replacement", "by the first q"): partial(
        exact_trees.judged, exact_trees.drawn_trees, renormalise=False
    ),
    ("the two likeliest children", "by the target's draw"): partial(
        exact_trees.followed, exact_trees.likeliest_trees
    ),
    ("the two likeliest children", "by q"): partial(
        exact_trees.judged, exact_trees.likeliest_trees, renormalise=True
    ),
    ("TETRIS, two of four drafts", "score=largest"): partial(exact_selection.selected, "largest"),
    ("TETRIS, two of four drafts", "score=entropy"): partial(exact_selection.selected, "entropy"),
    ("TETRIS, two of four drafts", "score=chosen, as published"): partial(
        exact_selection.selected, "chosen"
    ),
}


def measure_biases(
    cases: int = 20, *, progress: bool = True
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Compute each rule's total variation from the target's text, for `cases` random p and q.

    Returns:
        (table, conditions). One entry for each rule: judged, rule, lossless (whether no case is
        off by more than rounding), and total_variation_median and _max over the cases.

    Raises:
        ValueError: an argument is out of range.
    """
    require_int("cases", cases, maximum=MAX_CASES)
    require_bool("progress", progress)
    entries = []
    for (judged, rule), distance in tqdm(RULES.items(), unit="rule", disable=not progress):
        found = [distance(seed=seed) for seed in range(cases)]
        entry = {"judged": judged, "rule": rule, "lossless": max(found) < ROUNDING}
        sizes = {"median": float(np.median(found)), "max": max(found)}
        entries.append(entry | {f"total_variation_{name}": size for name, size in sizes.items()})
    conditions: dict[str, object] = {"cases": cases}
    conditions["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    conditions["versions"] = {name: version(name) for name in ("specviz", "torch", "numpy")}
    return pd.DataFrame(entries), conditions
