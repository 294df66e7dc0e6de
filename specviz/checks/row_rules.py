"""The rules about a row's lengths and ends: "lengths", "rectangle", "budget" and "eos".

Contract: each rule is a function of that name, which takes the `Rows` of a record and reports to
it. Not known here: what forwards saw and what caches held.
"""

import numpy as np
import pandas as pd

from specviz.checks.rows import Rows
from specviz.record.schema import MODELS, PHASES, Array

_TARGET = MODELS.index("target")
_VERIFY = PHASES.index("verify")


def lengths(rows: Rows) -> None:
    """A row gains the tokens that its request's output has, and goes on from there."""
    table = rows.table
    # Entries are sorted by round, so the one before of the same request is that of its last round.
    reached = (table["length"] + table["gained"]).groupby(table["request"]).shift()
    due = reached.fillna(table["prompt"]).astype(np.int64)
    for entry in rows.where(table["length"] != due):
        expected = f"the row should have {due[entry.Index]} tokens, as the round before left it"
        rows.report("lengths", "schedule", entry, expected, f"it has {entry.length}")
    emitted = rows.trace.rows["emitted"]  # (N, K+1)
    output = _output_tokens(rows)
    gained = np.arange(emitted.shape[1]) < rows.column("gained")
    for entry, j in rows.each(gained & (emitted != output)):
        token = rows.token(output[entry.Index, j])
        expected = f"index {entry.length + j} should be token {token}, as in the output"
        found = f"token {rows.token(emitted[entry.Index, j])} was emitted"
        rows.report("lengths", "accept", entry, expected, found)
    is_last = ~table["request"].duplicated(keep="last")
    for entry in rows.where(is_last & (table["after"] != table["output"])):
        expected = f"the request should end with {entry.output} new tokens, as in the output"
        found = f"it ends with {entry.after}"
        count = abs(entry.output - entry.after)
        rows.report("lengths", "accept", entry, expected, found, count=count)


def _output_tokens(rows: Rows) -> Array:
    """Return what each entry's emitted tokens are in the output, (N, K+1); -1 behind its end."""
    requests = rows.trace.requests
    request = rows.table["request"].to_numpy()[:, None]
    first = requests["output_offsets"][request]  # (N, 1)
    stop = requests["output_offsets"][request + 1]
    at = first + rows.column("before") + np.arange(rows.trace.rows["emitted"].shape[1])
    # A damaged record may place a row anywhere. -1 takes the last element, "behind the end".
    is_inside = (at >= first) & (at < stop)
    tokens: Array = np.append(requests["output_tokens"], -1)[np.where(is_inside, at, -1)]
    return tokens


def rectangle(rows: Rows) -> None:
    """A row's tokens fit between its start and its pending slot; aligned rows end together.

    Source: invariant I1 of arXiv 2510.22876.
    """
    table = rows.table
    _tokens_fit(rows, "schedule", table["length"], "")
    _tokens_fit(rows, "synchronise", table["length"] + table["gained"], "_after")
    _pending_is_fed_into_its_slot(rows)
    _aligned_rows_end_in_one_column(rows)


def _tokens_fit(rows: Rows, phase: str, length: pd.Series, suffix: str) -> None:
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
    feeds = rows.trace.feeds
    names = ("round", "row", "request", "index", "slot")
    fed = pd.DataFrame({name: feeds[name].astype(np.int64) for name in names})
    is_verified = (feeds["phase"] == _VERIFY) & (feeds["model"] == _TARGET)
    fed = rows.table.merge(fed[is_verified], on=["round", "row", "request"])
    is_wrong = (fed["index"] == fed["length"] - 1) & (fed["slot"] != fed["pending"])
    for entry in fed[is_wrong].itertuples():
        expected = f"the pending token should be fed into slot {entry.pending}, its own"
        found = f"it was fed into slot {entry.slot}"
        rows.report(
            "rectangle", "verify", entry, expected, found, model=_TARGET, slots=[entry.slot]
        )


def _aligned_rows_end_in_one_column(rows: Rows) -> None:
    """Padding + tokens of a row are the same for all rows of a round, where the run promises it."""
    # Only the record's own word counts. Rows that happen to end together for some rounds, as those
    # of a strategy that realigns now and then, owe nothing; nor do records without the entry.
    if not rows.trace.meta.get("right_aligned"):
        return
    pending = rows.table["pending"]
    # The column that most rows end in is taken as right, so that one stray row is named alone.
    by_round = pending.groupby(rows.table["round"])
    usual = by_round.transform(lambda slots: slots.mode().iloc[0])
    for entry in rows.where(pending != usual):
        expected = f"the row should end in slot {usual[entry.Index]}, like the others of its batch"
        found = f"it ends in slot {entry.pending}"
        rows.report("rectangle", "schedule", entry, expected, found, slots=[entry.pending])


def budget(rows: Rows) -> None:
    """A request gets no more tokens than its budget, and ends with fewer only if it reached EOS."""
    table = rows.table
    for entry in rows.where((table["gained"] > 0) & (table["after"] > table["budget"])):
        expected = f"the request should get at most {entry.budget} new tokens"
        found = f"it gets {entry.after}"
        count = entry.after - max(entry.before, entry.budget)
        rows.report("budget", "accept", entry, expected, found, count=count)
    statuses = enumerate(rows.trace.meta.get("status", ()))
    # A request whose logits were NaN or infinite is ended early, on purpose.
    not_finite = [request for request, status in statuses if status == "not_finite"]
    is_early = table["after"] < table[["budget", "end"]].min(axis=1)
    may_end_early = table["request"].isin(not_finite)
    for entry in rows.where((table["finished"] == 1) & is_early & ~may_end_early):
        expected = f"the row should go on until EOS or {entry.budget} new tokens"
        rows.report("budget", "accept", entry, expected, f"it finished with {entry.after}")
    at_budget = (table["after"] == table["budget"]) & (table["budget"] < table["end"])
    for entry in rows.where((table["finished"] == 0) & at_budget):
        expected = f"the row should be finished, because its budget is {entry.budget} new tokens"
        rows.report("budget", "accept", entry, expected, "it is not")


def eos(rows: Rows) -> None:
    """Nothing follows the first EOS of an output."""
    table = rows.table
    for entry in rows.where((table["gained"] > 0) & (table["after"] > table["end"])):
        expected = f"nothing should follow the EOS, which is new token {entry.end}"
        found = f"the row has {entry.after} new tokens"
        count = entry.after - max(entry.before, entry.end)
        rows.report("eos", "accept", entry, expected, found, count=count)
    at_eos = (table["after"] == table["end"]) & (table["end"] <= table["budget"])
    for entry in rows.where((table["finished"] == 0) & at_eos):
        expected = "the row should be finished, because its last token is EOS"
        rows.report("eos", "accept", entry, expected, "it is not")
