"""The rule "rectangle", of where a row begins and ends; what is moved is in `move_rules`.

Contract: `rectangle` takes the `Rows` of a record and reports to it. It runs after the rules about
forwards: where they name a wrong mask or lost K/V, a start that does not fit is not a fault of its
own. Not known here: what caches held.
"""

import numpy as np

from specviz.checks.journeys import Journeys
from specviz.checks.rows import Rows
from specviz.record.schema import MODELS, PHASES, Array, says_layout

_TARGET = MODELS.index("target")
_VERIFY, _SYNCHRONISE = PHASES.index("verify"), PHASES.index("synchronise")


def rectangle(rows: Rows) -> None:
    """Check that tokens fit between start and pending slot, and that aligned rows end together.

    Source: invariant I1 of arXiv 2510.22876.
    """
    if not says_layout(rows.trace.meta):
        return
    table = rows.table
    _tokens_fit(rows, "schedule", table["length"], "")
    _tokens_fit(rows, "synchronise", table["length"] + table["gained"], "_after")
    _pending_is_fed_into_its_slot(rows)
    _aligned_rows_end_in_one_column(rows)
    _queries_see_from_the_start_on(rows)
    _rows_stay_unless_moved(rows)
    _slots_hold_what_was_seen(rows)


def _tokens_fit(rows: Rows, phase: str, length: Array, suffix: str) -> None:
    starts = rows.table[f"start{suffix}"]
    pending = rows.table[f"pending{suffix}"]
    least = starts + length - 1
    for entry in rows.where(pending < least):
        i = entry.Index
        expected = (
            f"the pending token should be in slot {least[i]} or later, "
            f"because the row starts in slot {starts[i]}"
        )
        found = f"it is in slot {pending[i]}"
        rows.report("rectangle", phase, entry, expected, found, slots=[pending[i]])


def _pending_is_fed_into_its_slot(rows: Rows) -> None:
    verified = rows.verified
    slot = rows.trace.feeds["slot"][verified.feeds]
    is_wrong = verified.is_pending & (slot != rows.trace.rows["pending"][verified.entry])
    for k in np.flatnonzero(is_wrong).tolist():
        entry = rows.entry(int(verified.entry[k]))
        expected = f"the pending token should be fed into slot {entry.pending}, its own"
        found = f"it was fed into slot {slot[k]}"
        rows.report("rectangle", "verify", entry, expected, found, model=_TARGET, slots=[slot[k]])


def _aligned_rows_end_in_one_column(rows: Rows) -> None:
    """Check that padding + tokens are the same for all rows of a round, if the run promises it."""
    # Only the record's own word counts. Rows that happen to end together for some rounds, as those
    # of a strategy that realigns now and then, owe nothing; nor do records without the entry.
    if not rows.trace.meta.get("right_aligned"):
        return
    pending = rows.trace.rows["pending"]
    first = rows.trace.index.row_bounds[rows.trace.rows["round"]]
    if (pending == pending[first]).all():
        return
    # The column that most rows end in is taken as right, so that one stray row is named alone.
    usual = pending.copy()
    for number in np.unique(rows.trace.rows["round"][pending != pending[first]]).tolist():
        batch = rows.trace.index.rows_of(number)
        slots, counts = np.unique(pending[batch], return_counts=True)
        usual[batch] = slots[counts.argmax()]
    for entry in rows.where(pending != usual):
        expected = f"the row should end in slot {usual[entry.Index]}, like the others of its batch"
        found = f"it ends in slot {entry.pending}"
        rows.report("rectangle", "schedule", entry, expected, found, slots=[entry.pending])


def _queries_see_from_the_start_on(rows: Rows) -> None:
    """Check that the start is the first slot that queries of the row's verification see."""
    seen = rows.verified.seen_from
    is_wrong = (seen >= 0) & (seen != rows.table["start"])
    for entry in rows.where(is_wrong):
        # With a wrong mask the queries say nothing of where the row begins.
        if rows.has_finding("mask", _VERIFY, entry):
            continue
        expected = f"the row's tokens should begin in slot {entry.start}, its start"
        found = f"its queries see slots from {seen[entry.Index]} on"
        rows.report("rectangle", "schedule", entry, expected, found, slots=[entry.start])


def _rows_stay_unless_moved(rows: Rows) -> None:
    """Check that a row stays where it is unless its K/V is moved or computed again."""
    table = rows.table
    journeys = Journeys(rows)
    start, after = (table[name] for name in ("start", "start_after"))
    for entry in rows.where(journeys.is_still & (start != after)):
        if rows.has_finding("kv", _SYNCHRONISE, entry):
            continue  # the K/V should have been moved
        expected = f"the row should still start in slot {entry.start}, because no K/V was moved"
        found = f"it starts in slot {entry.start_after}"
        rows.report("rectangle", "synchronise", entry, expected, found, slots=[entry.start_after])
    due = journeys.next_of(start)
    # Where the queries of the next round say otherwise, its own start is wrong.
    is_due = due == journeys.next_of(rows.verified.seen_from)
    for entry in rows.where(journeys.is_left & is_due & (due != after)):
        found = f"the round after finds it in slot {due[entry.Index]}, with nothing moved between"
        expected = f"the row should start in slot {entry.start_after}, where this round leaves it"
        rows.report("rectangle", "synchronise", entry, expected, found, slots=[entry.start_after])
    fed = journeys.next_of(rows.verified.pending_slot)
    pending = table["pending_after"]
    for entry in rows.where(journeys.is_left_alone & (fed >= 0) & (fed != pending)):
        expected = f"the pending token should go to slot {entry.pending_after}"
        found = f"the round after feeds it into slot {fed[entry.Index]}, with nothing moved between"
        rows.report("rectangle", "synchronise", entry, expected, found, slots=[entry.pending_after])


def _slots_hold_what_was_seen(rows: Rows) -> None:
    """Check that no query of a verification sees a slot beyond the round's columns, `slots`."""
    trace = rows.trace
    slots = trace.rounds["slots"][trace.rows["round"]].astype(np.int64)
    stop = rows.verified.seen_until
    for entry in rows.where((slots > 0) & (stop > slots)):
        i = entry.Index
        expected = f"the verification should see {slots[i]} slots"
        rows.report(
            "rectangle", "verify", entry, expected, f"the row sees up to slot {stop[i] - 1}",
            slots=[stop[i] - 1],
        )  # fmt: skip
