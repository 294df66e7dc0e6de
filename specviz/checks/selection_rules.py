"""Which drafts a round verifies: the rules "verification" and "foresight".

Contract: each takes the `Rows` of a record and reports to it. They know the selectors "tetris" and
"threshold"; of another one they know what any must keep to. Not known here: what the target was fed
of the drafts, which is in `feed_rules`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.checks.rows import Rows
from specviz.record.schema import Array

_ROUNDING = 1e-3  # of a score in float32


def verification(rows: Rows) -> None:
    """Check that a round verifies what its selector's scores call for, within its capacity."""
    _fits_capacity(rows)
    _finished_rows_have_none(rows)
    meta = rows.trace.meta
    options = meta.get("selector_options")
    if not isinstance(options, dict):
        return
    if meta.get("selector") == "tetris":
        _are_the_largest(rows, options)
        _scores_are_chances(rows, options, summed=True)
    if meta.get("selector") == "threshold":
        _are_confident(rows, options)
        _scores_are_chances(rows, options, summed=False)


def foresight(rows: Rows) -> None:
    """Check that a draft does not decide itself whether it is judged, where coins judge drafts."""
    sampling = rows.trace.meta["sampling"] or {}
    if sampling.get("coupling") != "rejection" or rows.trace.meta.get("foresees") is not True:
        return
    # It holds for every round; the first one says it.
    for entry in rows.where((rows.table["round"] == 0) & (rows.table["drafted"] > 0)):
        expected = "whether a draft is judged should not depend on which token it is"
        found = (
            f"selector {rows.trace.meta.get('selector')!r} scores each draft by its own q, "
            "so the text is not distributed as the target's"
        )
        rows.report("foresight", "draft", entry, expected, found)


def _fits_capacity(rows: Rows) -> None:
    capacity = rows.trace.rounds["capacity"]
    number = rows.table["round"]
    used = np.bincount(number, weights=rows.table["verified"], minlength=capacity.size)
    for round_number in np.flatnonzero(used > capacity).tolist():
        # Said once, of the round's first row that verifies anything.
        is_first = (number == round_number) & (rows.table["verified"] > 0)
        entry = rows.entry(int(np.flatnonzero(is_first)[0]))
        expected = f"the round should verify at most {capacity[round_number]} drafts"
        surplus = int(used[round_number] - capacity[round_number])
        found = f"it verifies {int(used[round_number])}"
        rows.report("verification", "draft", entry, expected, found, count=surplus)


def _finished_rows_have_none(rows: Rows) -> None:
    for entry in rows.where((rows.table["gained"] == 0) & (rows.table["verified"] > 0)):
        expected = "a row that gains nothing should verify nothing"
        rows.report("verification", "draft", entry, expected, f"it verifies {entry.verified}")


def _are_the_largest(rows: Rows, options: Mapping[str, Any]) -> None:
    """Check that a round verifies as many drafts as it may, those with the largest scores."""
    table = rows.table
    scores = rows.trace.rows["scores"].astype(np.float64)  # (N, K)
    k = scores.shape[1]
    if k == 0:
        return
    every = np.arange(rows.size)
    last = np.where(table["verified"] > 0, scores[every, table["verified"] - 1], np.inf)
    following = np.minimum(table["verified"], k - 1)
    first_left = np.where(table["verified"] < table["drafted"], scores[every, following], -np.inf)
    # A row that has waited long enough gets its first draft verified whatever its score.
    is_due = _is_due(rows, options.get("max_wait"))
    last = np.where(is_due & (table["verified"] == 1), np.inf, last)
    first_left = np.where(is_due & (table["verified"] == 0), np.inf, first_left)
    # A row that ended because of non-finite logits does not say what was verified.
    is_active = table["gained"] > 0
    for i in range(rows.trace.num_rounds):
        which = np.arange(*rows.trace.index.row_bounds[i : i + 2])
        active = which[is_active[which]]
        if active.size == 0:
            continue
        least = int(active[np.nanargmin(np.where(np.isnan(last[active]), np.inf, last[active]))])
        for n in active[first_left[active] > last[least] + 1e-6].tolist():
            entry = rows.entry(n)
            expected = (
                f"draft {entry.verified + 1}, of score {first_left[n]:.4g}, should be verified "
                f"before draft {table['verified'][least]} of row {table['row'][least]}, "
                f"of score {last[least]:.4g}"
            )
            rows.report("verification", "draft", entry, expected, "it is not verified")
        if active.size == which.size:
            _is_used_up(rows, i, active)


def _is_used_up(rows: Rows, round_number: int, active: Array) -> None:
    """Check that a round verifies all it may, if the drafter drafts the same in every row."""
    if rows.trace.meta["drafter"] != "model":
        return
    drafted = rows.table["drafted"][active]
    due = min(int(rows.trace.rounds["capacity"][round_number]), int(drafted.sum()))
    used = int(rows.table["verified"][active].sum())
    if used < due:
        is_short = rows.table["verified"][active] < drafted
        entry = rows.entry(int(active[is_short][0]))
        expected = f"the round should verify {due} drafts"
        found = f"it verifies {used}"
        rows.report("verification", "draft", entry, expected, found, count=due - used)


def _is_due(rows: Rows, max_wait: Any) -> Array:
    """Return which entries have verified nothing for `max_wait` of their request's rounds, (N,)."""
    found = np.zeros(rows.size, bool)
    # Where memory ran out, rows began to wait again.
    if type(max_wait) is not int or rows.trace.meta.get("halvings"):
        return found
    waited = np.zeros(rows.trace.num_requests, np.int64)
    for n, request in enumerate(rows.table["request"].tolist()):
        found[n] = waited[request] >= max_wait
        waited[request] = 0 if rows.table["verified"][n] > 0 else waited[request] + 1
    return found


def _are_confident(rows: Rows, options: Mapping[str, Any]) -> None:
    """Check that a row verifies its drafts up to the first whose q is below the threshold."""
    at_least = options.get("at_least")
    if not isinstance(at_least, float):
        return
    q = np.exp(rows.trace.rows["scores"].astype(np.float64))
    is_drafted = np.arange(q.shape[1]) < rows.column("drafted")
    # Rounding decides what lies at the threshold itself.
    surely = ((q > at_least + 1e-6) & is_drafted).cumprod(axis=1).sum(axis=1)
    perhaps = ((q >= at_least - 1e-6) & is_drafted).cumprod(axis=1).sum(axis=1)
    verified = rows.table["verified"]
    is_wrong = (verified < surely) | (verified > perhaps)
    for entry in rows.where(is_wrong & (rows.table["gained"] > 0)):
        expected = (
            f"{surely[entry.Index]} drafts have q of at least {at_least:.3g} one after another"
        )
        rows.report("verification", "draft", entry, expected, f"{entry.verified} are verified")


def _scores_are_chances(rows: Rows, options: Mapping[str, Any], *, summed: bool) -> None:
    """Check that in greedy decoding scores of drafts follow from their log-probabilities."""
    logprob = rows.trace.rows["draft_logprob"].astype(np.float64)
    is_greedy = rows.trace.meta["sampling"] is None
    is_logged = bool(np.nan_to_num(logprob).any())
    if options.get("score") != "chosen" or not (is_greedy and is_logged):
        return
    of_chain = logprob.cumsum(axis=1) if summed else logprob
    due = of_chain
    if rows.branches.may_branch.any():
        on_branch = rows.branches.ancestors[:, 1:, 1:]  # (N, K, K)
        of_branch = np.where(on_branch, logprob[:, None], 0).sum(2)
        # A draft is verified only with all before it, so it is worth no more than they are.
        of_tree = np.minimum.accumulate(of_branch, axis=1)
        due = np.where(rows.branches.may_branch[:, None], of_tree, due)
    scores = rows.trace.rows["scores"].astype(np.float64)
    is_drafted = np.arange(due.shape[1]) < rows.column("drafted")
    is_wrong = is_drafted & (rows.column("gained") > 0) & ~np.isnan(due)
    is_wrong &= ~_are_close(scores, due)
    # A drafter that makes trees may propose a chain, too.
    is_wrong &= rows.branches.is_tree[:, None] | ~_are_close(scores, of_chain)
    for entry, j in rows.each(is_wrong):
        expected = f"the score of draft {j + 1} should be {due[entry.Index, j]:.4g}"
        found = f"it is {scores[entry.Index, j]:.4g}"
        rows.report("verification", "draft", entry, expected, found)


def _are_close(scores: Array, due: Array) -> Array:
    """Return which scores (N, K) are those that are due, up to rounding."""
    close: Array = np.abs(scores - due) <= _ROUNDING * (1 + np.abs(due))
    return close
