"""Rules about a row's length, its end and its place: "lengths", "budget", "eos", "rectangle".

Each function is a rule, and its docstring the sentence that a finding prints; see `rule`.
"rectangle" is invariant I1 of arXiv 2510.22876. These rules come after those about forwards: where
a wrong mask or lost K/V has been named, a start that does not fit is not a fault of its own. Not
known here: what caches held.
"""

import numpy as np

from specviz.checks.rule import Wrong, rule
from specviz.checks.table import RoundTable
from specviz.record.schema import MODELS, Array, says_layout

_TARGET = MODELS.index("target")


# ---- how long a row is ----


@rule("lengths", "schedule")
def goes_on(t: RoundTable) -> Wrong:
    """The row should have {due} tokens, as the round before left it; it has {length}."""
    due = t.prompt.copy()
    has_next = ~t.is_last
    due[t.following[has_next]] = (t.length + t.gained)[has_next]
    return t.length != due, {"due": due}


@rule("lengths", "accept")
def gains_its_output(t: RoundTable) -> Wrong:
    """Index {index} should be token {due:token}, as in the output; token {emitted:token} was
    emitted.
    """
    requests = t.trace.requests
    width = t.emitted.shape[1]
    first = requests["output_offsets"][t.request][:, None]
    stop = requests["output_offsets"][t.request + 1][:, None]
    at = first + t.before[:, None] + np.arange(width)
    # A damaged record may place a row anywhere. -1 takes the last element, "behind the end".
    is_inside = (at >= first) & (at < stop)
    due = np.append(requests["output_tokens"], -1)[np.where(is_inside, at, -1)]
    index = t.length[:, None] + np.arange(width)
    return t.below(t.gained, width) & (t.emitted != due), {"due": due, "index": index}


@rule("lengths", "accept", count="count")
def ends_with_its_output(t: RoundTable) -> Wrong:
    """The request should end with {output} new tokens, as in the output; it ends with {after}."""
    return t.is_last & (t.after != t.output), {"count": np.abs(t.output - t.after)}


# ---- when a row ends ----


@rule("budget", "accept", count="count", needs="budget")
def keeps_its_budget(t: RoundTable) -> Wrong:
    """The request should get at most {budget} new tokens; it gets {after}."""
    count = t.after - np.maximum(t.before, t.budget)
    return (t.gained > 0) & (t.after > t.budget), {"count": count}


@rule("budget", "accept", needs="budget")
def goes_on_to_its_end(t: RoundTable) -> Wrong:
    """The row should go on until EOS or {budget} new tokens; it finished with {after}."""
    is_early = t.after < np.minimum(t.budget, t.end)
    return (t.finished == 1) & is_early & ~t.ended_not_finite


@rule("budget", "accept", needs="budget")
def ends_at_its_budget(t: RoundTable) -> Wrong:
    """The row should be finished, because its budget is {budget} new tokens; it is not."""
    return (t.finished == 0) & (t.after == t.budget) & (t.budget < t.end)


@rule("eos", "accept", count="count")
def nothing_follows_eos(t: RoundTable) -> Wrong:
    """Nothing should follow the EOS, which is new token {end}; the row has {after} new tokens."""
    return (t.gained > 0) & (t.after > t.end), {"count": t.after - np.maximum(t.before, t.end)}


@rule("eos", "accept")
def ends_at_eos(t: RoundTable) -> Wrong:
    """The row should be finished, because its last token is EOS; it is not."""
    return (t.finished == 0) & (t.after == t.end) & (t.end <= t.budget)


# How a request ended is wrong by one of the rules above, and then the header may be right.
_END_IS_WRONG = (("budget", "accept"), ("eos", "accept"))


@rule("budget", "accept", unless=_END_IS_WRONG)
def has_a_status(t: RoundTable) -> Wrong:
    """The header should say how the request ended; it has no status."""
    statuses = t.trace.meta.get("status")
    return None if statuses is None else t.is_last & (t.request >= len(statuses))


@rule("budget", "accept", unless=_END_IS_WRONG)
def stops_at_a_stop_string(t: RoundTable) -> Wrong:
    """The output should end as status "{status}" says; the run has no stop strings."""
    return (t.status == "stop") & (not t.trace.meta.get("stop"))


@rule("eos", "accept", unless=_END_IS_WRONG)
def ends_with_eos_as_it_says(t: RoundTable) -> Wrong:
    """The output should end as status "{status}" says; it does not end with EOS."""
    return (t.status == "eos") & ~t.has_eos


@rule("budget", "accept", unless=_END_IS_WRONG)
def ends_without_eos_as_it_says(t: RoundTable) -> Wrong:
    """The output should end as status "{status}" says; it ends with EOS."""
    return (t.status != "") & (t.status != "eos") & t.has_eos


@rule("budget", "accept", unless=_END_IS_WRONG)
def is_as_long_as_it_says(t: RoundTable) -> Wrong:
    """A request of status "{status}" should have {due} {budget} tokens; it has {output}."""
    is_other = (t.status != "") & (t.status != "eos") & ~t.has_eos
    due = np.where(t.status == "budget", "its", "fewer than its")
    return is_other & ((t.status == "budget") != (t.output == t.budget)), {"due": due}


@rule("budget", "accept", unless=_END_IS_WRONG)
def is_finished_as_it_says(t: RoundTable) -> Wrong:
    """A request of status "{status}" should be {due}; its row is not."""
    fits = (t.status != "") & ((t.status == "eos") == t.has_eos)
    fits &= (t.status == "eos") | ((t.status == "budget") == (t.output == t.budget))
    goes_on = (t.status == "interrupted") | (t.status == "elsewhere")
    due = np.where(t.finished == 1, "unfinished", "finished")
    return fits & (goes_on == (t.finished == 1)), {"due": due}


# ---- where a row lies ----


def _tokens_fit(t: RoundTable, length: Array, suffix: str) -> Wrong:
    if not says_layout(t.trace.meta):
        return None
    start, pending = t.column(f"start{suffix}"), t.column(f"pending{suffix}")
    least = start + length - 1
    return pending < least, {"least": least, "start": start, "pending": pending}


@rule("rectangle", "schedule", slot="pending")
def fits_at_first(t: RoundTable) -> Wrong:
    """The pending token should be in slot {least} or later, because the row starts in slot {start};
    it is in slot {pending}.
    """
    return _tokens_fit(t, t.length, "")


@rule("rectangle", "synchronise", slot="pending")
def fits_at_last(t: RoundTable) -> Wrong:
    """The pending token should be in slot {least} or later, because the row starts in slot {start};
    it is in slot {pending}.
    """
    return _tokens_fit(t, t.length + t.gained, "_after")


@rule("rectangle", "verify", slot="fed", model=_TARGET, needs="layout")
def pending_goes_into_its_slot(t: RoundTable) -> Wrong:
    """The pending token should be fed into slot {pending}, its own; it was fed into slot {fed}."""
    verified = t.verified_feeds
    slot = t.trace.feeds["slot"][verified.feeds]
    is_wrong = verified.is_pending & (slot != t.pending[verified.entry])
    wrong, fed = np.zeros(t.size, bool), np.zeros(t.size, np.int64)
    # From the last to the first, so that the first one counts.
    at = np.flatnonzero(is_wrong)[::-1]
    wrong[verified.entry[at]], fed[verified.entry[at]] = True, slot[at]
    return wrong, {"fed": fed}


@rule("rectangle", "schedule", slot="pending", needs="layout")
def aligned_rows_end_together(t: RoundTable) -> Wrong:
    """The row should end in slot {usual}, like the others of its batch; it ends in slot
    {pending}.
    """
    # Only the record's own word counts. Rows that happen to end together for some rounds, as those
    # of a strategy that realigns now and then, owe nothing; nor do records without the entry.
    if not t.trace.meta.get("right_aligned"):
        return None
    index = t.trace.index
    # The column that most rows end in is taken as right, so that one stray row is named alone.
    usual = t.pending[index.row_bounds[t.round]]
    for number in np.unique(t.round[t.pending != usual]).tolist():
        batch = index.rows_of(number)
        slots, counts = np.unique(t.pending[batch], return_counts=True)
        usual[batch] = slots[counts.argmax()]
    return t.pending != usual, {"usual": usual}


@rule("rectangle", "schedule", unless=(("mask", "verify"),), slot="start", needs="layout")
def queries_see_from_the_start_on(t: RoundTable) -> Wrong:
    """The row's tokens should begin in slot {start}, its start; its queries see slots from {seen}
    on.
    """
    # With a wrong mask the queries say nothing of where the row begins.
    seen = t.verified_feeds.seen_from
    return (seen >= 0) & (seen != t.start), {"seen": seen}


@rule(
    "rectangle", "synchronise", unless=(("kv", "synchronise"),), slot="start_after", needs="layout"
)
def stays_unless_moved(t: RoundTable) -> Wrong:
    """The row should still start in slot {start}, because no K/V was moved; it starts in slot
    {start_after}.
    """
    # Where K/V is known to be lost, it should have been moved.
    return t.is_still & (t.start != t.start_after)


@rule("rectangle", "synchronise", slot="start_after", needs="layout")
def is_found_where_it_was_left(t: RoundTable) -> Wrong:
    """The row should start in slot {start_after}, where this round leaves it; the round after finds
    it in slot {due}, with nothing moved between.
    """
    due = t.next_of(t.start)
    # Where the queries of the next round say otherwise, its own start is wrong.
    is_due = due == t.next_of(t.verified_feeds.seen_from)
    return t.stays & is_due & (due != t.start_after), {"due": due}


@rule("rectangle", "synchronise", slot="pending_after", needs="layout")
def pending_goes_where_it_was_left(t: RoundTable) -> Wrong:
    """The pending token should go to slot {pending_after}; the round after feeds it into slot
    {fed}, with nothing moved between.
    """
    fed = t.next_of(t.verified_feeds.pending_slot)
    return t.stays_alone & (fed >= 0) & (fed != t.pending_after), {"fed": fed}


@rule("rectangle", "verify", slot="last", needs="layout")
def sees_no_further_than_the_round(t: RoundTable) -> Wrong:
    """The verification should see {slots} slots; the row sees up to slot {last}."""
    slots = t.trace.rounds["slots"][t.round].astype(np.int64)
    last = t.verified_feeds.seen_until - 1
    return (slots > 0) & (last >= slots), {"slots": slots, "last": last}
