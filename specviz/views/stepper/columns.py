"""Columns that the step-through derives from a record's tables, whole tables at a time.

Contract: reads a Trace; arrays and lists out. Not known here: words, JSON.
"""

import numpy as np

from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.record.trees import branching

_VERIFY = PHASES.index("verify")
_TARGET = MODELS.index("target")


def milliseconds(trace: Trace) -> list[list[float]]:
    """Return the time of each phase by round; 0 for a value that is not finite."""
    columns = [trace.rounds[f"{phase}_ms"].astype(np.float64) for phase in PHASES]
    ms = np.stack(columns, axis=1)  # (rounds, phases)
    finite = np.where(np.isfinite(ms), ms, 0)
    return [[round(value, 3) for value in values] for values in finite.tolist()]


def begins_ms(trace: Trace) -> list[list[float]] | None:
    """Return when each phase of each round began, on the clock of both lanes.

    None unless the record is that of a lane, and complete in this.
    """
    found = trace.meta.get("begins_ms")
    try:
        begins = np.array(found, np.float64)
    except (TypeError, ValueError):
        return None
    fits = begins.shape == (trace.num_rounds, len(PHASES)) and np.isfinite(begins).all()
    if not fits or begins.min() < 0 or (np.diff(begins.ravel()) < 0).any():
        return None
    return list(begins.tolist())


def has_selector(trace: Trace) -> bool:
    """Return whether a selector decided which drafts are verified."""
    return trace.meta.get("selector", "everything") != "everything"


def has_trees(trace: Trace) -> bool:
    """Return whether any row's drafts form another tree than a chain."""
    return bool(branching(trace.rows).any())


def verified(trace: Trace) -> tuple[Array, Array]:
    """Return what the target's verifications read of rows in the batch.

    These are numbers in the table `feeds`, (n,), and the entries of the table `rows` that they
    belong to, (n,).
    """
    feeds = trace.feeds
    fed = np.flatnonzero((feeds["phase"] == _VERIFY) & (feeds["model"] == _TARGET))
    entries = trace.index.feed_rows[fed]
    return fed[entries >= 0], entries[entries >= 0]


def pending_positions(trace: Trace) -> tuple[Array, Array]:
    """Return the position id of each row's pending token, before and after the round: (N,), (N,).

    N is the number of entries of the table `rows`. The target reads the pending token in the
    verification of this round, and in that of the request's next round. Where it does not, the
    token's index is taken.
    """
    rows = trace.rows
    feeds = trace.feeds
    fed, entries = verified(trace)
    is_pending = rows["length"][entries] - 1 == feeds["index"][fed]
    is_pending &= rows["request"][entries] == feeds["request"][fed]

    before = rows["length"] - 1
    position = feeds["position"][fed[is_pending]]
    # A log may not say it.
    known = position >= 0
    before[entries[is_pending][known]] = position[known]

    after = rows["length"] + rows["gained"] - 1
    by_request = np.argsort(rows["request"], kind="stable")
    this = by_request[:-1]
    following = by_request[1:]
    # The last round of a request is followed by the first one of another.
    continues = rows["request"][this] == rows["request"][following]
    after[this[continues]] = before[following[continues]]
    return before, after
