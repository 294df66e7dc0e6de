"""What a recorded run did in vain: rows that were verified for nothing, tokens thrown away, text that was read again.

Contract: reads a `Trace` alone. Not known here: how long anything took, and why it was done.
"""

import numpy as np
import pandas as pd

from specviz.schema import MODELS, PHASES
from specviz.trace import Trace


def waste(trace: Trace) -> pd.DataFrame:
    """The run in one row: rounds, verified_rows (rows of all verifications), idle_rows (those of them that had finished before),
    discarded_tokens (verified, right and thrown away), mean_draft_tokens (K, over rows at work), target_read and draft_read (tokens that a
    model was given / those that it has to be given once; NaN where a model was given none).

    The target has to read each prompt but its last token; a draft that keeps its K/V, too, and then in each round the last two committed
    tokens of each row at work and its drafts but the last, K + 1. Filling of shorter rows counts as neither.
    """
    rows, feeds = trace.rows, trace.feeds
    working = rows["gained"] > 0
    prompts = int((np.diff(trace.requests["prompt_offsets"]) - 1).sum())
    drafting = working & (rows["drafted"] > 0)
    read = {"target": feeds["phase"] == PHASES.index("schedule"), "draft": np.ones(feeds["phase"].size, bool)}
    needed = {"target": prompts, "draft": prompts + int((rows["drafted"][drafting] + 1).sum())}
    given = {name: int((read[name] & (feeds["model"] == MODELS.index(name))).sum()) for name in MODELS}
    return pd.DataFrame(
        {
            "rounds": [trace.num_rounds],
            "verified_rows": [rows["row"].size],
            "idle_rows": [int((~working).sum())],
            "discarded_tokens": [int(rows["discarded"].sum())],
            "mean_draft_tokens": [rows["drafted"][working].mean() if working.any() else np.nan],
            **{f"{name}_read": [given[name] / needed[name] if given[name] and needed[name] else np.nan] for name in MODELS},
        }
    )
