"""The rules about a row's lengths and ends: "lengths", "budget" and "eos".

Contract: each rule is a function of that name, which takes the `Rows` of a record and reports to
it. Not known here: what forwards saw and what caches held.
"""

import numpy as np

from specviz.checks.rows import Rows
from specviz.record.schema import PHASES, Array, missing_in

_ACCEPT = PHASES.index("accept")


def lengths(rows: Rows) -> None:
    """Check that a row gains the tokens of its request's output, and goes on from there."""
    table = rows.table
    reached = table["length"] + table["gained"]
    # Entries are sorted by round, so the one before of the same request is that of its last round.
    order = np.argsort(table["request"], kind="stable")
    follows = np.flatnonzero(np.diff(table["request"][order]) == 0)
    due = table["prompt"].copy()
    due[order[follows + 1]] = reached[order[follows]]
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
    for entry in rows.where(rows.is_last & (table["after"] != table["output"])):
        expected = f"the request should end with {entry.output} new tokens, as in the output"
        found = f"it ends with {entry.after}"
        count = abs(entry.output - entry.after)
        rows.report("lengths", "accept", entry, expected, found, count=count)


def _output_tokens(rows: Rows) -> Array:
    """Return what each entry's emitted tokens are in the output, (N, K+1); -1 behind its end."""
    requests = rows.trace.requests
    request = rows.column("request")
    first = requests["output_offsets"][request]  # (N, 1)
    stop = requests["output_offsets"][request + 1]
    at = first + rows.column("before") + np.arange(rows.trace.rows["emitted"].shape[1])
    # A damaged record may place a row anywhere. -1 takes the last element, "behind the end".
    is_inside = (at >= first) & (at < stop)
    tokens: Array = np.append(requests["output_tokens"], -1)[np.where(is_inside, at, -1)]
    return tokens


def budget(rows: Rows) -> None:
    """Check that a request stays within its budget, and ends with fewer only if it reached EOS."""
    if "budget" in missing_in(rows.trace.meta):
        return
    table = rows.table
    for entry in rows.where((table["gained"] > 0) & (table["after"] > table["budget"])):
        expected = f"the request should get at most {entry.budget} new tokens"
        found = f"it gets {entry.after}"
        count = entry.after - max(entry.before, entry.budget)
        rows.report("budget", "accept", entry, expected, found, count=count)
    statuses = enumerate(rows.trace.meta.get("status", ()))
    # A request whose logits were NaN or infinite is ended early, on purpose.
    not_finite = [request for request, status in statuses if status == "not_finite"]
    is_early = table["after"] < np.minimum(table["budget"], table["end"])
    may_end_early = np.isin(table["request"], not_finite)
    for entry in rows.where((table["finished"] == 1) & is_early & ~may_end_early):
        expected = f"the row should go on until EOS or {entry.budget} new tokens"
        rows.report("budget", "accept", entry, expected, f"it finished with {entry.after}")
    at_budget = (table["after"] == table["budget"]) & (table["budget"] < table["end"])
    for entry in rows.where((table["finished"] == 0) & at_budget):
        expected = f"the row should be finished, because its budget is {entry.budget} new tokens"
        rows.report("budget", "accept", entry, expected, "it is not")


def eos(rows: Rows) -> None:
    """Check that nothing follows the first EOS of an output."""
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


def status(rows: Rows) -> None:
    """Check that a request ended as its status says: rules "budget" and "eos"."""
    statuses = rows.trace.meta.get("status")
    if statuses is None:
        return
    eos_ids = set(rows.trace.meta["eos_token_ids"])
    for entry in rows.where(rows.is_last):
        if any(rows.has_finding(rule, _ACCEPT, entry) for rule in ("budget", "eos")):
            continue  # how it ended is wrong, and the header may be right
        if entry.request >= len(statuses):
            expected = "the header should say how the request ended"
            rows.report("budget", "accept", entry, expected, "it has no status")
            continue
        ended = statuses[entry.request]
        output = rows.trace.output(entry.request)
        has_eos = bool(output) and output[-1] in eos_ids
        is_full = len(output) == entry.budget
        if (ended == "eos") != has_eos:
            words = "ends" if has_eos else "does not end"
            expected = f'status "{ended}" should be that of the output'
            found = f"which {words} with EOS"
            rows.report("eos" if ended == "eos" else "budget", "accept", entry, expected, found)
        elif ended != "eos" and (ended == "budget") != is_full:
            expected = f'a request of status "{ended}" should have '
            expected += f"{'its' if ended == 'budget' else 'fewer than its'} {entry.budget} tokens"
            rows.report("budget", "accept", entry, expected, f"it has {len(output)}")
        elif (ended in ("interrupted", "elsewhere")) == bool(entry.finished):
            expected = f'a request of status "{ended}" should be '
            expected += "unfinished" if entry.finished else "finished"
            rows.report("budget", "accept", entry, expected, "its row is not")
