"""How far rules that look right take a text from the target's, by exact enumeration.

All that a small round can draw and decide is summed, for random distributions p and q, by the
oracles of the tests.
"""

import sys
from functools import partial

import numpy as np
import pandas as pd
from measure import FIGURES, Measured, command, without_model

sys.path.append(str(FIGURES.parent / "tests"))

import exact_selection
import exact_trees

ROUNDING = 1e-12  # what sums of some thousand float64 numbers may be off
DRAWN = "children drawn without replacement"
LIKELIEST = "the two likeliest children"
TETRIS = "TETRIS, two of four drafts"
drawn, likeliest = exact_trees.drawn_trees, exact_trees.likeliest_trees
# What is judged, the rule, and the distance of a case, by its seed.
RULES = (
    (DRAWN, "by q renormalised", partial(exact_trees.judged, drawn, renormalise=True)),
    (DRAWN, "by the first q", partial(exact_trees.judged, drawn, renormalise=False)),
    (LIKELIEST, "by the target's draw", partial(exact_trees.followed, likeliest)),
    (LIKELIEST, "by q", partial(exact_trees.judged, likeliest, renormalise=True)),
    (TETRIS, "score=largest", partial(exact_selection.selected, "largest")),
    (TETRIS, "score=entropy", partial(exact_selection.selected, "entropy")),
    (TETRIS, "score=chosen, as published", partial(exact_selection.selected, "chosen")),
)


def biases(cases: int) -> Measured:
    """Return each rule's total variation from the target's text, over `cases` random p and q."""
    entries = []
    for judged, rule, distance in RULES:
        found = [distance(seed=seed) for seed in range(cases)]
        entry = {
            "judged": judged,
            "rule": rule,
            "lossless": max(found) < ROUNDING,
            "total_variation_median": np.median(found),
            "total_variation_max": max(found),
        }
        entries.append(entry)
    return pd.DataFrame(entries), without_model(cases=cases)


if __name__ == "__main__":
    command(biases, {"biases": {"cases": 20}}, {"cases": 2})
