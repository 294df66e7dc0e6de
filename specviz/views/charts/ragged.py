"""`pick_ragged_round`: the round of a run that shows raggedness best.

Contract: reads the counts of a Trace or a Result. Not known here: how a round is drawn.
"""

import numpy as np

from specviz.metrics import RecordedRun, check_recorded


def pick_ragged_round(run: RecordedRun) -> int:
    """Return the round that shows raggedness best; the first one of equals.

    Compared in this order: how many rows drafted and go on after the round, whether one row
    accepts nothing and another everything, and how many different a occur.

    Raises ValueError when the run has no rounds or drafted nothing.
    """
    check_recorded(run)
    scores = [_raggedness(run, round) for round in range(len(run.rounds["batch"]))]
    if not any(continuing > 0 for continuing, _, _ in scores):
        raise ValueError(
            "run must have drafts in a round after which a row goes on, got none; pass a longer run"
        )
    return scores.index(max(scores))


def _raggedness(run: RecordedRun, round: int) -> tuple[int, int, int]:
    """Return (rows that drafted and go on, how many of a = 0 and a = K occur, different a)."""
    drafting = (run.rows["round"] == round) & (run.rows["drafted"] > 0)
    accepted = run.rows["accepted"][drafting]
    continuing = int((run.rows["finished"][drafting] == 0).sum())
    nothing_accepted = bool((accepted == 0).any())
    all_accepted = bool((accepted == run.rows["drafted"][drafting]).any())
    return continuing, nothing_accepted + all_accepted, len(np.unique(accepted))
