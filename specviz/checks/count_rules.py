"""How many drafts a round accepts, gains and throws away: a part of the rule "acceptance".

Contract: `counts_add_up` takes the `Rows` of a record and reports to it. What could have been kept
was either gained or is counted as discarded: right tokens do not vanish without a sign.
"""

import numpy as np

from specviz.checks.fates import target_choices
from specviz.checks.rows import Rows
from specviz.record.schema import Array


def counts_add_up(rows: Rows) -> None:
    """Check that gained + discarded tokens are what the target accepted, up to EOS and budget."""
    table = rows.table
    gained, discarded = (table[name] for name in ("gained", "discarded"))
    least, most = _possible(rows)
    # More than is possible is named by the rules about the choices, EOS and the budget.
    is_judged = (gained > 0) & (gained <= most) & ~_ended_not_finite(rows)
    for entry in rows.where(is_judged & (gained + discarded < least)):
        i = entry.Index
        expected = f"{least[i]} tokens could be kept, so they should be gained or discarded"
        found = f"the row gains {entry.gained} and discards {entry.discarded}"
        if least[i] > entry.accepted + 1:
            found += ", although the target agrees with more drafts"
        count = int(least[i] - entry.gained - entry.discarded)
        rows.report("acceptance", "accept", entry, expected, found, count=count)
    for entry in rows.where(is_judged & (discarded > 0) & (gained + discarded > most)):
        surplus = int(entry.gained + entry.discarded - most[entry.Index])
        expected = f"no more than {most[entry.Index]} tokens could be kept"
        found = f"the row gains {entry.gained} and discards {entry.discarded}"
        rows.report("acceptance", "accept", entry, expected, found, count=surplus)
    for entry in rows.where((gained == 0) & ((discarded > 0) | (table["accepted"] > 0))):
        expected = "a row that gains nothing should accept and discard nothing"
        found = f"it accepts {entry.accepted} and discards {entry.discarded}"
        rows.report("acceptance", "accept", entry, expected, found)
    _nothing_behind(rows)


def _nothing_behind(rows: Rows) -> None:
    """Check that no token is emitted behind those that a row gains."""
    emitted = rows.trace.rows["emitted"]
    is_behind = np.arange(emitted.shape[1]) >= rows.column("gained")
    for entry, j in rows.each(is_behind & (emitted > 0)):  # 0 is what a log leaves empty
        expected = f"nothing should be emitted behind the {entry.gained} tokens gained"
        found = f"{rows.token(emitted[entry.Index, j])} is noted there"
        rows.report("acceptance", "accept", entry, expected, found)


def _possible(rows: Rows) -> tuple[Array, Array]:
    """Return how many tokens each entry could keep at least and at most, both (N,).

    They are equal where the record has the target's choices.
    """
    table, trace = rows.table, rows.trace
    k = trace.rows["drafts"].shape[1]
    verified = rows.column("verified")
    accepted = table["accepted"]
    column = np.arange(k)
    branches = rows.branches
    choices = target_choices(trace)
    is_known: Array = np.all((choices[:, :k] >= 0) | (column >= verified), axis=1)
    right = (trace.rows["drafts"] == choices[:, :k]) & (column < verified)
    agreed = right.cumprod(axis=1).sum(axis=1)
    if branches.any:
        of_tree, last = branches.follow(choices)
        agreed = np.where(branches.is_tree, of_tree, agreed)
        is_behind = ~branches.ancestors[np.arange(rows.size), last]  # not on the way to the last
        choices = np.where(branches.is_tree[:, None], _in_order(choices, ~is_behind), choices)
    least = np.where(is_known, agreed, accepted) + 1
    most = np.where(is_known, agreed, _most_accepted(rows)) + 1

    room = table["budget"] - table["before"]
    to_eos = table["end"] - table["before"]
    # Behind what was gained, EOS may lie in what was thrown away.
    eos = np.array(trace.meta["eos_token_ids"], np.int64)
    is_eos = np.isin(choices, eos) & is_known[:, None]
    to_chosen_eos = np.where(is_eos.any(1), is_eos.argmax(1) + 1, to_eos)
    limit = np.minimum(room, np.minimum(to_eos, to_chosen_eos))
    return np.minimum(least, limit), np.minimum(most, limit)


def _most_accepted(rows: Rows) -> Array:
    """Return how many drafts the target can have accepted, where its choices are not known, (N,).

    A draft that was replaced by another token was rejected, and nothing behind it counts.
    """
    table, trace = rows.table, rows.trace
    k = trace.rows["drafts"].shape[1]
    accepted = table["accepted"]
    every = np.arange(rows.size)
    drafts = np.append(trace.rows["drafts"], np.full((rows.size, 1), -1), axis=1)
    emitted = trace.rows["emitted"][every, accepted]
    is_own = emitted != drafts[every, accepted]
    most = np.minimum(table["verified"], k)
    branches = rows.branches
    if branches.any:
        is_child = branches.is_next & (trace.rows["drafts"] == emitted[:, None])
        is_own = np.where(branches.is_tree, ~is_child.any(1), is_own)
        is_verified = np.arange(k) < rows.column("verified")
        deepest = np.where(is_verified, branches.depths[:, 1:], 0).max(1, initial=0)
        most = np.where(branches.is_tree, deepest, most)
    is_replaced = (table["gained"] > accepted) & is_own
    found: Array = np.where(is_replaced, accepted, most)
    return found


def _in_order(values: Array, chosen: Array) -> Array:
    """Return the values (N, m) that are chosen, in order and before the others; those are -1."""
    order = np.argsort(~chosen, axis=1, kind="stable")
    ordered: Array = np.take_along_axis(np.where(chosen, values, -1), order, axis=1)
    return ordered


def _ended_not_finite(rows: Rows) -> Array:
    """Return which entries (N,) are of requests that ended early because of NaN or infinity."""
    statuses = enumerate(rows.trace.meta.get("status", ()))
    requests = [request for request, status in statuses if status == "not_finite"]
    found: Array = np.isin(rows.trace.rows["request"], requests)
    return found
